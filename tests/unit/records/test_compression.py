import struct
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest
from cramjam import lz4, snappy, zstd
from hypothesis import given
from hypothesis import strategies as st

from quorate.records.batch import Compression
from quorate.records.compression import compress, decompress
from quorate.records.errors import CorruptBatch
from quorate.records.legacy import header_checksum, with_right_header_checksum

MEBIBYTE = 1024 * 1024
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@given(st.sampled_from(Compression), st.binary(max_size=1000), st.integers(1, 200))
def test_what_was_compressed_comes_back(codec: Compression, data: bytes, repeats: int) -> None:
    assert decompress(codec, compress(codec, data * repeats)) == data * repeats


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(codec: Compression, wrap: type) -> None:
    assert decompress(codec, wrap(compress(codec, wrap(b"some bytes" * 10)))) == b"some bytes" * 10


def test_codec_numbers_are_those_of_the_wire() -> None:
    assert [(codec.name, codec.value) for codec in Compression] == [
        ("NONE", 0),
        ("GZIP", 1),
        ("SNAPPY", 2),
        ("LZ4", 3),
        ("ZSTD", 4),
    ]


def test_snappy_is_read_in_both_framings() -> None:
    """librdkafka writes one raw block, Java clients the frame of the xerial library."""
    data = b"snappy " * 10_000
    assert compress(Compression.SNAPPY, data).startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    assert decompress(Compression.SNAPPY, bytes(snappy.compress_raw(data))) == data


def test_xerial_blocks_follow_each_other() -> None:
    blocks = [b"first", b"", b"second" * 100]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for block in blocks:
        compressed = bytes(snappy.compress_raw(block))
        framed += struct.pack(">i", len(compressed)) + compressed
    assert decompress(Compression.SNAPPY, framed) == b"".join(blocks)


def test_xerial_block_longer_than_the_bytes_left_is_corrupt() -> None:
    block = bytes(snappy.compress_raw(b"whole"))
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block) + 1) + block
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, framed)


def test_lz4_blocks_are_independent_since_java_refuses_others() -> None:
    frame = compress(Compression.LZ4, bytes(200_000))
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20


def test_lz4_blocks_that_depend_on_each_other_are_read() -> None:
    data = b"".join(b"line %d\n" % number for number in range(50_000))
    assert decompress(Compression.LZ4, bytes(lz4.compress(data, level=1))) == data


def test_gzip_members_follow_each_other() -> None:
    members = zlib.compress(b"first ", wbits=31) + zlib.compress(b"second", wbits=31)
    assert decompress(Compression.GZIP, members) == b"first second"
    with pytest.raises(CorruptBatch):
        decompress(Compression.GZIP, members, limit_bytes=11)


def test_zstd_frames_follow_each_other() -> None:
    assert decompress(Compression.ZSTD, bytes(zstd.compress(b"first ")) + bytes(zstd.compress(b"second"))) == (
        b"first second"
    )


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_shrinks_a_thousandfold_is_read(codec: Compression) -> None:
    data = bytes(8 * MEBIBYTE)
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_data_of_exactly_the_limit_is_read(codec: Compression) -> None:
    compressed = compress(codec, bytes(100_000))
    assert len(decompress(codec, compressed, limit_bytes=100_000)) == 100_000
    with pytest.raises(CorruptBatch):
        decompress(codec, compressed, limit_bytes=99_999)


@pytest.fixture
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced_memory")
@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bomb_allocates_no_more_than_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 * MEBIBYTE))
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()

    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, limit_bytes=4 * MEBIBYTE)

    _, peak = tracemalloc.get_traced_memory()
    assert peak - before < 9 * MEBIBYTE  # The limit, and what growing or joining holds beside it.


@pytest.mark.usefixtures("traced_memory")
def test_tiny_snappy_block_that_claims_gigabytes_allocates_nothing() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + bytes(20)
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, claim, limit_bytes=2**33)
    _, peak = tracemalloc.get_traced_memory()
    assert peak < MEBIBYTE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 40, b"\x82SNAPPY\x00", b"\x82SNAPPY\x00" + b"\x7f" * 20])
def test_bytes_of_no_codec_are_corrupt(codec: Compression, data: bytes) -> None:
    if codec is Compression.SNAPPY and data in (b"\x00", b"\x82SNAPPY\x00"):
        assert decompress(codec, data) == b""
        return
    with pytest.raises(CorruptBatch):
        decompress(codec, data)


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_ends_early_is_corrupt(codec: Compression) -> None:
    compressed = compress(codec, bytes(range(256)) * 300)
    for size in range(len(compressed) - 200, len(compressed) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, compressed[:size])


@pytest.mark.parametrize(
    ("descriptor", "checksum"),
    [("6040", 0x82), ("7040", 0xAD), ("5440", 0xAE), ("6840" + "0a00000000000000", 0x47)],
)
def test_lz4_header_checksum_is_that_of_the_specification(descriptor: str, checksum: int) -> None:
    assert header_checksum(bytes.fromhex(descriptor)) == checksum


def test_lz4_header_checksum_of_message_format_0_is_put_right() -> None:
    frame = bytearray(compress(Compression.LZ4, b"some bytes"))
    right = bytes(frame)
    frame[6] ^= 0xFF
    with pytest.raises(CorruptBatch):
        decompress(Compression.LZ4, frame)
    assert with_right_header_checksum(bytes(frame)) == right


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x60\x40", b"not a frame"])
def test_lz4_header_of_no_frame_is_corrupt(frame: bytes) -> None:
    with pytest.raises(CorruptBatch):
        with_right_header_checksum(frame)
