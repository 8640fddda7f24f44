"""What is said to the peer port: by strangers, by nodes that ask to join, and by one that has joined.

A stranger says the same as the others, and things about a handshake; but for its proof nothing that it says is read.
"""

from collections.abc import Callable
from random import Random
from struct import pack
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import inspect

from quorate.broker.handlers import APIS
from quorate.metadata.core.commands import Command, RegisterBroker
from quorate.protocol.apis import ApiKey
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.messages import Message
from quorate.replication.core.messages import ReplicaFetch
from quorate.security.peer_handshake import NONCE_BYTES
from quorate.transport.peers.frames import Channel, FrameKind
from quorate.transport.peers.hello import PROTOCOL_VERSION, Hello
from tests.fuzz import world as w
from tests.fuzz.bursts import Burst, Claim, choose_ending, random_of
from tests.fuzz.mutations import mutate
from tests.fuzz.peer_restraint import PeerRestraint
from tests.fuzz.record_batches import RecordBatches
from tests.fuzz.request_bytes import RequestBytes
from tests.fuzz.structs import Structs, encode
from tests.fuzz.values import Values
from tests.fuzz.world import World

#: Who asks to join, and is not let in by anything that the fuzz says.
GUEST_IDS: Final = (0, 666, 6000, 6001, 2**31 - 1)
#: Who has joined, and never starts.
LEARNER_ID: Final = 5000
LEARNER_FOLDER: Final = UUID(int=5000)

_FRAMES_PER_BURST: Final = 4
#: Of all bursts, those of who does not know the cluster's secret.
_UNPROVEN: Final = 0.25
#: What cannot be read ends the connection, so most of that comes last.
_HOSTILITIES: Final = (0.0, 0.0, 0.0, 0.02)
_HOSTILITIES_LAST: Final = (0.0, 0.05, 0.3)
_MUTATED: Final = 0.02
_MUTATED_LAST: Final = 0.5
_MOST_TRIES: Final = 20
_MESSAGE: Final = inspect.type_info(Message)
_LEADER_REQUEST: Final = inspect.type_info(q.LeaderRequest)
_COMMANDS: Final = inspect.type_info(list[Command])
_REGISTRATIONS: Final = inspect.type_info(list[RegisterBroker])
_SUBMIT: Final = inspect.type_info(q.Submit)
_HEARTBEAT: Final = inspect.type_info(q.BrokerHeartbeat)
_FETCH: Final = inspect.type_info(ReplicaFetch)
_HELLO: Final = inspect.type_info(Hello)
_BETWEEN_NODES: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS)


class PeerBursts:
    #: The hello, and what is likely to end the connection.
    frames_per_burst = _FRAMES_PER_BURST

    def __init__(self, seed: int, world: World, term: int) -> None:
        self._seed = seed
        self._world = world
        self._term = term
        self._batches = RecordBatches(world)
        self._restraint = PeerRestraint(world, term, frozenset((*world.node_ids, LEARNER_ID)))

    def burst(self, number: int) -> Burst:
        random = random_of(self._seed, number)
        requests = RequestBytes(random, Values(random, self._world), self._batches)
        return _Speaker(number, self._world, self._term, requests, self._restraint, random=random).burst()


class _Speaker:
    """Who says the frames of one burst."""

    def __init__(
        self,
        number: int,
        world: World,
        term: int,
        requests: RequestBytes,
        restraint: PeerRestraint,
        *,
        random: Random,
    ) -> None:
        self._random = random
        self._number = number
        self._world = world
        self._restraint = restraint
        self._target = world.node_ids[number % len(world.node_ids)]
        self._requests = requests
        self._me = random.choice(GUEST_IDS)
        self._folder = UUID(int=random.getrandbits(128))
        self._claim: int | None = None
        self._is_introduced = False
        self._is_voter = False
        self._hostilities: tuple[float, ...] = _HOSTILITIES
        topics = [str(topic_id) for topic_id in world.topic_ids]
        self._structs = Structs(
            random,
            {
                "term": lambda: random.choice((0, 1, term, term, term)),
                "sender": lambda: self._me,
                "receiver": lambda: self._target,
                "node_id": lambda: self._me,
                "base_offset": lambda: random.choice((0, 1, 5, 20)),
                "kind": lambda: random.choice((0, 1, 2)),
                "commands": self._commands,
                "validate_only": lambda: True,
                "broker_epoch": lambda: random.choice((-1, 2**41, 2**63 - 1)),
                "topic_id": lambda: random.choice(topics),
                "partition": lambda: random.choice((0, 1, 3, 4)),
                "leader_epoch": lambda: random.choice((-1, 0, 1, 2)),
                "fetch_offset": lambda: random.choice((0, 1, 100, 500)),
                "session": lambda: random.choice((1, 1, 2)),
                "name": lambda: random.choice((*w.FUZZ_TOPICS, w.STANDING_TOPIC)),
                "fenced": lambda: True,
                "host": lambda: "127.0.0.1",
                "port": lambda: 9092,
                "peer_address": lambda: "127.0.0.1:1",
                "directory_id": lambda: str(self._folder),
            },
        )

    def burst(self) -> Burst:
        random = self._random
        introductions: tuple[Callable[[], bytes], ...] = (
            self._none,
            self._refused,
            self._guest,
            self._learner,
            self._voter,
        )
        (introduce,) = random.choices(introductions, weights=(15, 10, 40, 34.8, 0.2))
        first = introduce()
        is_proven = random.random() >= _UNPROVEN
        if not is_proven and random.random() < 0.5:
            first = self._handshake()
        frames = [first, *(self._permitted(place) for place in range(1, _FRAMES_PER_BURST))]
        piece_bytes, ending = choose_ending(random)
        return Burst(
            number=self._number,
            frames=tuple(frames),
            piece_bytes=piece_bytes,
            ending=ending,
            waits_after_first=self._is_introduced,
            proves=Claim(self._me if self._claim is None else self._claim, self._target) if is_proven else None,
        )

    # How it begins.

    def _none(self) -> bytes:
        """No hello: noise, a frame that is not due, a request of Kafka's, or a hello that is damaged."""
        random = self._random
        match random.randrange(5):
            case 0:
                return _frame(random.randbytes(random.choice((0, 1, 20, 4096))))
            case 1:
                return random.randbytes(random.choice((1, 4, 40, 1000)))
            case 2:
                return self._permitted(0)
            case 3:
                body = self._requests.write(APIS[ApiKey.API_VERSIONS].request, 3, 0.1, -1)
                return _frame(pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1) + b"\0" + body)
            case _:
                hello = self._hello()
                return _frame(mutate(random, hello, hello))

    def _refused(self) -> bytes:
        """As a node of another cluster, for another node, as this very node, or a member with another folder."""
        random = self._random
        wrong: dict[str, Any] = random.choice(
            (
                {"cluster_id": "another"},
                {"target_id": random.choice((self._me, -1, 2**63 - 1))},
                {"node_id": self._target},
                {"node_id": random.choice(self._world.node_ids)},
                {"node_id": LEARNER_ID},
                {"node_id": random.choice((-1, 2**31, 2**63 - 1, -(2**63)))},
            )
        )
        said = wrong.get("node_id", self._target)
        if 0 <= said < 2**31 and said != self._target and random.random() < 0.7:
            self._claim = said  # Or else it has proven to be another one than its hello says.
        return _frame(self._hello(**wrong))

    def _handshake(self) -> bytes:
        """An opening, a proof or something like it, by who cannot go on with it."""
        random = self._random
        opening = b"QPH\0" + bytes([random.choice((0, 1, 1, 1, 2, 255))]) + random.randbytes(NONCE_BYTES)
        proof = pack(">iiB", self._me, self._target, random.choice((0, 1, 2, 3, 255))) + random.randbytes(64)
        body = random.choice((opening, opening, proof, random.randbytes(random.choice((0, 5, 128, 4000)))))
        if random.random() < 0.3:
            body = mutate(random, body, opening)
        return _frame(bytes([FrameKind.AUTHENTICATE]) + body)

    def _guest(self) -> bytes:
        self._is_introduced = True
        return _frame(self._hello())

    def _learner(self) -> bytes:
        self._is_introduced = True
        self._me, self._folder = LEARNER_ID, LEARNER_FOLDER
        return _frame(self._hello())

    def _voter(self) -> bytes:
        """Which has this connection in place of its own from then on, so that it seldom happens."""
        random, world = self._random, self._world
        self._is_introduced = self._is_voter = True
        others = [place for place, node_id in enumerate(world.node_ids) if node_id != self._target]
        place = random.choice(others)
        self._me, self._folder = world.node_ids[place], world.directory_ids[place]
        return _frame(self._hello())

    def _hello(self, **changed: Any) -> bytes:
        said = {
            "cluster_id": self._world.cluster_id,
            "node_id": self._me,
            "target_id": self._target,
            "incarnation": self._random.choice((0, 1, 2**63 - 1)),
            "directory_id": str(self._folder),
            "target_directory_id": str(w.NO_ID),
        }
        version = PROTOCOL_VERSION if self._random.random() < 0.97 else self._random.choice((0, 3, 4, 6, 65535))
        return pack(">BH", FrameKind.HELLO, version) + msgspec.msgpack.encode(said | changed)

    # How it goes on.

    def _permitted(self, place: int) -> bytes:
        random = self._random
        is_last = place == _FRAMES_PER_BURST - 1
        is_mutated = random.random() < (_MUTATED_LAST if is_last else _MUTATED)
        self._hostilities = _HOSTILITIES_LAST if is_last else _HOSTILITIES
        for _ in range(_MOST_TRIES):
            frame = self._any_frame()
            if is_mutated:
                frame = mutate(random, frame, self._any_frame())
            if self._restraint.permits(frame, is_voter=self._is_voter):
                break
        else:
            frame = bytes([FrameKind.PING])
        if is_mutated and random.random() < 0.05:
            return pack(">I", random.choice((0, len(frame) + 1, 2**31, 2**32 - 1, 65 << 20))) + frame
        return _frame(frame)

    def _any_frame(self) -> bytes:
        random = self._random
        hostility = random.choice(self._hostilities)
        kind = random.random()
        if kind < 0.4:
            channel = self._channel(Channel.RAFT, hostility)
            return bytes([FrameKind.MESSAGE, channel]) + encode(self._structs.value(_MESSAGE, hostility))
        if kind < 0.9:
            correlation = pack(">Q", random.choice((0, 1, 2, 2**64 - 1)))
            channel, request = self._request(hostility)
            return bytes([FrameKind.REQUEST]) + correlation + bytes([self._channel(channel, hostility)]) + request
        if kind < 0.95:
            return bytes([FrameKind.PING]) + random.randbytes(random.choice((0, 0, 10)))
        return bytes([random.choice((0, 1, 2, 5, 6, 7, 8, 9, 10, 255))]) + random.randbytes(random.choice((0, 8, 100)))

    def _channel(self, due: Channel, hostility: float) -> int:
        """Now and then another than what is said is for, or one that there is not."""
        return self._random.choice((0, *Channel, 6, 255)) if self._random.random() < hostility / 10 else due

    def _request(self, hostility: float) -> tuple[Channel, bytes]:
        random = self._random
        kind = random.random()
        if self._me != LEARNER_ID and kind < 0.9:
            kind_of_joining = random.choice((_SUBMIT, _SUBMIT, _HEARTBEAT))
            return Channel.CONTROLLER, encode(self._structs.value(kind_of_joining, hostility))
        if kind < 0.5:
            return Channel.CONTROLLER, encode(self._structs.value(_LEADER_REQUEST, hostility))
        if kind < 0.75:
            return Channel.REPLICA_FETCH, encode(self._structs.value(_FETCH, hostility))
        api = APIS[random.choice(_BETWEEN_NODES)]
        version = random.randint(api.min_version, api.max_version)
        fault = random.randrange(1, 20) if random.random() < hostility else -1
        body = self._requests.write(api.request, version, hostility, fault)
        return Channel.KAFKA, pack(">hh", api.request.API_KEY, version) + body

    def _commands(self) -> bytes:
        """Who is not known may register, and nothing else."""
        kind = _COMMANDS if self._me == LEARNER_ID or self._random.random() < 0.05 else _REGISTRATIONS
        return encode(self._structs.value(kind, self._random.choice(self._hostilities)))


def _frame(body: bytes) -> bytes:
    return pack(">I", len(body)) + body
