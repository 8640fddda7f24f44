"""Who comes to the door: strangers who log in in every wrong way, users who go on after it, and nodes that are none.

A visit follows from the seed and its number, but for what TLS and the nodes draw themselves.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_response, encode_request
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest
from quorate.protocol.schema import Request
from quorate.security.peer_handshake import ClusterSecrets
from quorate.security.sasl.logins import LoginCredentials, new_login
from quorate.security.sasl.outcomes import LoginFailed
from tests.fuzz import world as w
from tests.fuzz.door_line import Line, LineEnded, Mangle, as_it_is
from tests.fuzz.door_peers import visit_as_node
from tests.fuzz.door_records import mangling, stray_record
from tests.fuzz.door_tokens import hostile_token
from tests.fuzz.mutations import mutate
from tests.fuzz.pulse import Pulse
from tests.peers.secured_node import MECHANISMS, PASSWORD, USERNAME
from tests.unit.transport.tls13_records import Tls13Records

#: What nobody may create.
FORBIDDEN_TOPIC: Final = "of-a-stranger"
_FIRST_ID: Final = 0x5EED0000
_WITH_TLS: Final = ("SSL", "MTLS", "ASKING", "SASL_SSL", "STORED")
_WITH_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL", "RENEWED", "STORED")
_ILLEGAL_STATE: Final = b"\0\x22"
#: An answer that refuses has no room for anything else.
_LONGEST_REFUSAL: Final = 64
_MECHANISM_NAMES: Final = ("", "GSSAPI", "plain", "SCRAM-SHA-1", "ANONYMOUS", "x" * 30_000, "PLAIN\n", "\U0001f4a5")


class BrokenIn(AssertionError):
    """Something was answered that only somebody who is let in may ask for."""


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Where the visits go, and what users and nodes know."""

    addresses: Mapping[str, tuple[str, int]]
    peer_address: tuple[str, int]
    authority_file: str
    #: For what a visit writes down.
    folder: Path
    secrets: ClusterSecrets
    node_id: int
    #: Of a user, good for as long as the fuzz takes.
    access_token: str


class Visitor:
    def __init__(self, door: Door, seed: int, number: int, pulse: Pulse) -> None:
        self._door = door
        self._random = Random(f"door/{seed}/{number}")
        self._pulse = pulse
        self._listener = ""
        self._probes: dict[int, str] = {}
        self._next_id = _FIRST_ID
        self._is_in = False
        self._token_version = 0
        self._number = number
        self._key_log: Path | None = None
        self.frames = 0
        self.answers = 0

    async def visit(self) -> bool:
        """Whether the node has ended the connection, or left something unanswered."""
        visits: tuple[Callable[[], Awaitable[None]], ...] = (
            self._as_stranger,
            self._as_user,
            self._as_one_who_renews,
            self._below_tls,
            self._as_node,
            self._as_one_who_changes_keys,
        )
        (visit,) = self._random.choices(visits, weights=(50, 12, 6, 20, 12, 0.5))
        try:
            await visit()
        except LineEnded:
            return True
        return False

    # The visits.

    async def _as_stranger(self) -> None:
        random = self._random
        await self._on_line(random.choice(_WITH_SASL), self._say_as_stranger, is_mangled=random.random() < 0.1)

    async def _say_as_stranger(self, line: Line) -> None:
        random = self._random
        if random.random() < 0.3:
            await self._send(line, ApiVersionsRequest(), 3)
            await self._receive(line)
        if random.random() < 0.1:
            await self._probe(line)
        await self._log_in(line, hostility=random.choice((0.3, 0.6, 1.0)), password="wrong")
        await self._probe(line)
        await self._read_to_the_end(line)

    async def _as_user(self) -> None:
        await self._on_line(self._random.choice(_WITH_SASL), self._say_as_user)

    async def _say_as_user(self, line: Line) -> None:
        """Right, and then whatever comes to mind: of this user nothing is served either, but denials."""
        random = self._random
        self._is_in = await self._log_in(line, hostility=0, password=PASSWORD)
        for _ in range(random.choice((1, 3, 6))):
            match random.randrange(4):
                case 0:
                    await self._handshake(line, random.choice((*MECHANISMS, *_MECHANISM_NAMES)), random.choice((0, 1)))
                case 1:
                    token = hostile_token(random, random.choice(MECHANISMS), b"n,,n=alice,r=x")
                    await self._send(line, SaslAuthenticateRequest(auth_bytes=token), random.choice((0, 1, 2)))
                case _:
                    await self._probe(line)
            await self._receive(line)

    async def _as_one_who_renews(self) -> None:
        await self._on_line("RENEWED", self._renew)

    async def _renew(self, line: Line) -> None:
        """Again and again on one connection, at once, in another mechanism, or with another password."""
        random = self._random
        mechanism = random.choice(MECHANISMS)
        self._is_in = await self._log_in(line, hostility=0, password=PASSWORD, mechanism=mechanism)
        for _ in range(random.choice((2, 5, 20))):
            if random.random() < 0.2:
                mechanism = random.choice(MECHANISMS)
            password = PASSWORD if random.random() < 0.8 else "wrong"
            await self._log_in(line, hostility=random.choice((0, 0, 0.3)), password=password, mechanism=mechanism)

    async def _below_tls(self) -> None:
        """Records that are cut, joined, strewn with others, or not TLS at all."""
        random = self._random
        listener = random.choice(_WITH_TLS)
        if random.random() < 0.2:
            await self._on_line(listener, self._say_what_is_not_tls, has_tls=False)
        else:
            await self._on_line(listener, self._say_below, is_mangled=True)

    async def _say_what_is_not_tls(self, line: Line) -> None:
        random = self._random
        for _ in range(random.choice((1, 1, 3))):
            await line.send_below(stray_record(random))
        if random.random() < 0.3:
            line.say_no_more()
        await self._read_to_the_end(line)

    async def _say_below(self, line: Line) -> None:
        """The handshake was done in spite of all: now between the records of requests."""
        random = self._random
        for _ in range(random.choice((1, 3))):
            if random.random() < 0.5:
                await line.send_below(stray_record(random))
            await (self._probe(line) if random.random() < 0.7 else self._send(line, ApiVersionsRequest(), 3))
        if random.random() < 0.3:
            line.say_no_more()
        await self._read_to_the_end(line)

    async def _as_one_who_changes_keys(self) -> None:
        """Again and again, each time asking the node for the same, and takes no answer."""
        self._key_log = self._door.folder / f"keys-{self._number}"
        try:
            await self._on_line(self._random.choice(("SSL", "SASL_SSL")), self._change_keys)
        finally:
            self._key_log.unlink(missing_ok=True)

    async def _change_keys(self, line: Line) -> None:
        assert self._key_log is not None
        records = Tls13Records(self._key_log)
        for _ in range(self._random.choice((1, 10, 40))):
            await line.send_below(b"".join(records.key_update() for _ in range(500)))

    async def _as_node(self) -> None:
        line = await Line.open(self._door.peer_address, self._pulse)
        try:
            broken_in = await visit_as_node(line, self._random, self._door.node_id, self._door.secrets)
        finally:
            self._leave(line)
        if broken_in is not None:
            raise BrokenIn(f"the peer port: {broken_in}")

    # What they are made of.

    async def _on_line(
        self,
        listener: str,
        say: Callable[[Line], Awaitable[None]],
        *,
        has_tls: bool | None = None,
        is_mangled: bool = False,
    ) -> None:
        self._listener = listener
        mangle: Mangle = mangling(self._random) if is_mangled else as_it_is
        line = await Line.open(self._door.addresses[listener], self._pulse, mangle)
        try:
            if listener in _WITH_TLS if has_tls is None else has_tls:
                await line.begin_tls(self._context())
            await say(line)
        finally:
            self._leave(line)

    def _leave(self, line: Line) -> None:
        self.frames += line.frames
        self.answers += line.answers
        line.close()

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._door.authority_file)
        version = self._random.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
        context.maximum_version = version
        if self._key_log is not None:
            context.maximum_version = ssl.TLSVersion.TLSv1_3
            context.keylog_filename = str(self._key_log)
        return context

    async def _log_in(self, line: Line, *, hostility: float, password: str, mechanism: str | None = None) -> bool:
        """Whether it is done and was let in."""
        random = self._random
        name = mechanism or random.choice(MECHANISMS)
        version = random.choice((0, 1, 1, 1))
        asked = random.choice(_MECHANISM_NAMES) if random.random() < hostility / 10 else name
        for _ in range(1 if random.random() >= hostility / 10 else 3):
            await self._handshake(line, asked, version)
            await self._receive(line)
        credentials = LoginCredentials(
            username=USERNAME if random.random() < 0.7 or not hostility else "nobody",
            password=password,
            access_token=self._door.access_token if password == PASSWORD else "a.b.c",
        )
        login = new_login(name, credentials, f"{random.getrandbits(160):040x}")
        token = login.first()
        while True:
            is_changed = random.random() < hostility
            said = hostile_token(random, name, token) if is_changed else token
            for _ in range(2 if random.random() < hostility / 10 else 1):
                await self._say_token(line, said, version)
            if random.random() < hostility / 8:
                await self._probe(line)
            answered = self._challenge(await self._receive(line), version)
            if answered is None or is_changed:
                return False
            try:
                following = login.answer(answered)
            except LoginFailed:
                return False
            if following is None:
                return True
            token = following

    async def _handshake(self, line: Line, mechanism: str, version: int) -> None:
        await self._send(line, SaslHandshakeRequest(mechanism=mechanism), version)

    async def _say_token(self, line: Line, token: bytes, version: int) -> None:
        if version == 0:
            await line.send_frame(token)
        else:
            self._token_version = self._random.choice((0, 1, 2))
            await self._send(line, SaslAuthenticateRequest(auth_bytes=token), self._token_version)

    def _challenge(self, answer: bytes, version: int) -> bytes | None:
        """What the node says in the mechanism's own words; None where it refuses."""
        if version == 0:
            return answer
        try:
            _, response = decode_response(SaslAuthenticateResponse, answer, self._token_version)
        except ProtocolError:
            return None  # It belongs to another request.
        return bytes(response.auth_bytes) if response.error_code == 0 else None

    async def _probe(self, line: Line) -> None:
        """A request that is only for those who are let in."""
        random = self._random
        requests: tuple[tuple[Request, int], ...] = (
            (MetadataRequest(topics=None), 4),
            (ListGroupsRequest(), 2),
            (DescribeClusterRequest(), 0),
            (DeleteTopicsRequest(topic_names=[w.WITNESS_TOPIC]), 3),
            (CreateTopicsRequest(topics=[_topic()], timeout_ms=1000), 4),
        )
        request, version = random.choice(requests)
        self._probes[self._next_id] = type(request).__name__
        await self._send(line, request, version, is_mutable=random.random() < 0.1)

    async def _send(self, line: Line, request: Request, version: int, *, is_mutable: bool = False) -> None:
        frame = b"".join(encode_request(self._next_id, "fuzz", request, version))[4:]
        self._next_id += 1
        if is_mutable or self._random.random() < 0.01:
            # Behind the number that the answer is known by.
            frame = frame[:8] + mutate(self._random, frame[8:], frame)
        await line.send_frame(frame)

    async def _receive(self, line: Line) -> bytes:
        answer = await line.receive_frame()
        self._judge(answer)
        return answer

    async def _read_to_the_end(self, line: Line) -> None:
        while True:
            await self._receive(line)

    def _judge(self, answer: bytes) -> None:
        probe = self._probes.get(int.from_bytes(answer[:4]))
        if probe is None or self._is_in or self._listener in ("SSL", "ASKING"):
            return
        if len(answer) > _LONGEST_REFUSAL or _ILLEGAL_STATE not in answer[4:]:
            raise BrokenIn(f"{probe} was served at {self._listener} to who is not let in: {answer[:100]!r}")


def _topic() -> CreatableTopic:
    return CreatableTopic(name=FORBIDDEN_TOPIC, num_partitions=1, replication_factor=1)
