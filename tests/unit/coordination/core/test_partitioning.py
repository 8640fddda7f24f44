import pytest

from quorate.coordination.core.partitioning import java_string_hash, partition_for
from quorate.kernel.ids import GroupId


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),  # The classic string whose hash is the smallest int32.
        ("😀", 1772899),  # Two UTF-16 code units, not one code point.
    ],
)
def test_hash_is_that_of_java_strings(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_smallest_hash_falls_into_the_first_partition() -> None:
    assert partition_for(GroupId("polygenelubricants"), 50) == 0


def test_negative_hash_counts_by_its_magnitude() -> None:
    assert java_string_hash("orders-readers") == -879800024
    assert partition_for(GroupId("orders-readers"), 50) == 24
