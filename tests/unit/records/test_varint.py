import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.records.errors import CorruptBatch
from quorate.records.record import VARINT_BITS, VARLONG_BITS, encode_varint, read_folded, unfold


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_are_encoded_as_in_kafka(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    folded, end = read_folded(bytes.fromhex(encoded), 0, VARLONG_BITS)
    assert (unfold(folded), end) == (value, len(encoded) // 2)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_varint_is_read_back_from_the_middle_of_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    folded, end = read_folded(before + encoded + after, len(before), VARINT_BITS)
    assert (unfold(folded), end) == (value, len(before) + len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_is_read_back(value: int) -> None:
    encoded = encode_varint(value)
    folded, end = read_folded(encoded, 0, VARLONG_BITS)
    assert (unfold(folded), end) == (value, len(encoded))


@pytest.mark.parametrize(
    ("encoded", "bits"),
    [
        ("ffffffff10", VARINT_BITS),  # A 33rd bit in the fifth byte.
        ("808080808000", VARINT_BITS),
        ("ffffffffffffffffff02", VARLONG_BITS),
        ("ff" * 20, VARLONG_BITS),
    ],
)
def test_number_of_too_many_bits_is_corrupt(encoded: str, bits: int) -> None:
    with pytest.raises(CorruptBatch):
        read_folded(bytes.fromhex(encoded), 0, bits)
