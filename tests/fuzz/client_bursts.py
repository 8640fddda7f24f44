"""What is said to the client port: requests of every API and version that the node serves."""

from random import Random
from struct import pack
from typing import Final

from quorate.broker.handlers import APIS
from quorate.protocol.apis import ApiKey
from tests.fuzz import world as w
from tests.fuzz.bursts import Burst, choose_ending, random_of
from tests.fuzz.mutations import mutate
from tests.fuzz.record_batches import RecordBatches
from tests.fuzz.request_bytes import RequestBytes
from tests.fuzz.restraint import Restraint
from tests.fuzz.values import Values
from tests.fuzz.world import World

#: How likely a value is to be hostile, in a request as a whole: many get past the first check.
_HOSTILITIES: Final = (0.0, 0.0, 0.02, 0.05, 0.1, 0.3)
#: A frame that cannot be read ends its connection, so most of them come last.
_FAULTY: Final = 0.005
_FAULTY_LAST: Final = 0.2
_MUTATED: Final = 0.005
_MUTATED_LAST: Final = 0.6
_WRONG_LENGTH: Final = 0.03
_MOST_TRIES: Final = 20
#: Each of them does something that one more request of another kind does not.
_OFTEN: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_COMMIT)


class ClientBursts:
    frames_per_burst = 8

    def __init__(self, seed: int, world: World, *, is_wide: bool = False) -> None:
        self._is_wide = is_wide
        self._seed = seed
        self._world = world
        self._batches = RecordBatches(world)
        self._restraint = Restraint(world)
        keys = [*sorted(APIS), *_OFTEN]
        self._choices = [(APIS[key], version) for key in keys for version in _versions(key)]

    def burst(self, number: int) -> Burst:
        random = random_of(self._seed, number)
        requests = RequestBytes(random, Values(random, self._world), self._batches, is_wide=self._is_wide)
        frames = [self._permitted(random, requests, number, place) for place in range(self.frames_per_burst)]
        piece_bytes, ending = choose_ending(random)
        return Burst(number=number, frames=tuple(frames), piece_bytes=piece_bytes, ending=ending)

    def _permitted(self, random: Random, requests: RequestBytes, number: int, place: int) -> bytes:
        index = number * self.frames_per_burst + place
        is_last = place == self.frames_per_burst - 1
        is_mutated = random.random() < (_MUTATED_LAST if is_last else _MUTATED)
        faulty = _FAULTY_LAST if is_last else _FAULTY
        for _ in range(_MOST_TRIES):
            frame = self._frame(random, requests, index, faulty)
            if is_mutated:
                frame = mutate(random, frame, self._frame(random, requests, index, faulty))
            if self._restraint.permits(frame):
                break
        else:
            return pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, index & 0x7FFFFFFF, -1)
        length = len(frame)
        if is_mutated and random.random() < _WRONG_LENGTH:
            length = random.choice((0, -1, 2**31 - 1, -(2**31), 7, length + 1, max(0, length - 1)))
        return pack(">i", length) + frame

    def _frame(self, random: Random, requests: RequestBytes, index: int, faulty: float) -> bytes:
        api, version = random.choice(self._choices)
        hostility = random.choice(_HOSTILITIES)
        fault = random.randrange(1, 30) if random.random() < faulty else -1
        body = requests.write(api.request, version, hostility, fault)
        tags = b""
        if version >= api.request.FLEXIBLE_FROM:
            tags = b"\1\x05\2ab" if random.random() < hostility / 4 else b"\0"
        return b"".join([pack(">hhi", api.request.API_KEY, version, index), _client_id(random, index), tags, body])


def _client_id(random: Random, index: int) -> bytes:
    """By which the node's log names the frame, unless the name is what is hostile."""
    if random.random() < 0.03:
        hostile = random.choice(w.CLIENT_IDS).encode()
        return pack(">h", len(hostile)) + hostile
    if random.random() < 0.02:
        return b"\xff\xff"
    name = b"fuzz-%d" % index
    return pack(">h", len(name)) + name


def _versions(key: int) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)
