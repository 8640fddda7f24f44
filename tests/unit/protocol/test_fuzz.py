"""More than 100,000 broken frames: each is refused cleanly or means something, and none makes memory grow."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_request_header, decode_response
from quorate.protocol.schema import Response, VersionedMessage
from tests.unit.protocol.samples import Sampler, types_and_versions

FRAMES_AT_LEAST = 100_000
MAX_SAMPLE_BYTES = 120
RANDOM_FRAMES = 40
BIT_FLIPS = 60
# Lengths and counts that a frame of this size cannot honour: as int16, int32 and varint.
HUGE_LENGTHS = (b"\x7f\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07")
# A frame of some hundred bytes may become a few hundred small objects, never more.
PEAK_BYTES = 200_000


def _small_sample(message_type: type[VersionedMessage], version: int, random: Random) -> bytes:
    """The encoding of a random message: of some, the longest that is not too long to be broken at every position."""
    sampler = Sampler(random.random().hex(), small=True)
    samples = [b"".join(encode(sampler.message(message_type, version), version)) for _ in range(10)]
    return max((s for s in samples if len(s) <= MAX_SAMPLE_BYTES), key=len, default=min(samples, key=len))


def _truncated(sample: bytes) -> Iterator[bytes]:
    for size in range(len(sample)):
        yield sample[:size]


def _broken(sample: bytes, random: Random) -> Iterator[bytes]:
    for position in range(len(sample)):
        for huge in HUGE_LENGTHS:
            yield sample[:position] + huge + sample[position + len(huge) :]
    for _ in range(BIT_FLIPS if sample else 0):
        frame = bytearray(sample)
        for _ in range(random.choice((1, 1, 2, 5))):
            frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
        yield bytes(frame)
    for _ in range(RANDOM_FRAMES):
        yield random.randbytes(random.choice((1, 4, 16, 64, 256)))


def _decode_broken(message_type: type[VersionedMessage], frame: bytes, version: int) -> None:
    """Anything but ``ProtocolError`` or a message that can be encoded again is a failure."""
    try:
        message = decode(message_type, frame, version)
    except ProtocolError:
        return
    encoded = b"".join(encode(message, version))
    again = decode(message_type, encoded, version)
    # Bytes are compared, as a random float may be NaN.
    assert b"".join(encode(again, version)) == encoded


@contextmanager
def _memory_bounded(peak_bytes: int, title: str) -> Iterator[None]:
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    yield
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before < peak_bytes, title


@pytest.fixture
def traced_memory() -> Iterator[None]:
    # Specialising a codec takes more memory than any frame: all of them are made before the tracing starts.
    for message_type, version in types_and_versions():
        decode(message_type, b"".join(encode(message_type(), version)), version)
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced_memory")
def test_broken_frames_are_refused_without_a_crash_or_a_large_allocation() -> None:
    random = Random("fuzz")
    frames = 0
    for message_type, version in types_and_versions():
        sample = _small_sample(message_type, version, random)
        with _memory_bounded(PEAK_BYTES, f"{message_type.__name__} {version}"):
            for frame in _truncated(sample):
                with pytest.raises(ProtocolError):
                    decode(message_type, frame, version)
                frames += 1
            for frame in _broken(sample, random):
                _decode_broken(message_type, frame, version)
                frames += 1

    assert frames > FRAMES_AT_LEAST


def test_random_frames_have_a_header_or_are_refused() -> None:
    random = Random("headers")
    for _ in range(20_000):
        frame = random.randbytes(random.randrange(40))
        # Half of them with an API key that exists, so that the header is read to its end.
        if random.random() < 0.5:
            frame = bytes([0, random.randrange(80), 0, random.randrange(12)]) + frame
        try:
            header = decode_request_header(frame)
        except ProtocolError:
            continue
        assert header.correlation_id == int.from_bytes(frame[4:8], signed=True)
        assert header.body_position <= len(frame)


def test_random_responses_are_decoded_or_refused() -> None:
    random = Random("responses")
    for message_type, version in types_and_versions():
        if not issubclass(message_type, Response):
            continue
        for size in (0, 3, 4, 5, 40):
            try:
                decode_response(message_type, random.randbytes(size), version)
            except ProtocolError:
                continue
