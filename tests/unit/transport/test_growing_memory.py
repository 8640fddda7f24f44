"""Memory that grows and keeps its content, whoever still looks at it."""

import pytest

from quorate.transport.receive_memory import GrowingMemory

LARGE = 200_000


@pytest.mark.parametrize("before", [10, 1000, LARGE])
@pytest.mark.parametrize("after", [1000, 100_000, LARGE, 5 * LARGE])
@pytest.mark.parametrize("start", [0, 3])
def test_content_is_kept_when_it_grows(before: int, after: int, start: int) -> None:
    memory = GrowingMemory(memoryview(b"0123456789"), before)
    memory.keep(start, 10, after)
    assert bytes(memory.view[: 10 - start]) == b"0123456789"[start:]
    assert len(memory.view) == max(before, after)


def test_it_grows_while_a_part_of_it_is_still_looked_at() -> None:
    memory = GrowingMemory(memoryview(b"0123456789"), LARGE)
    part = memory.view[:10]
    memory.keep(0, 10, 2 * LARGE)
    assert bytes(part) == bytes(memory.view[:10]) == b"0123456789"


def test_large_memory_grows_in_place_without_a_copy() -> None:
    memory = GrowingMemory(memoryview(b"0123456789"), LARGE)
    memory.view[LARGE - 1] = 7
    memory.keep(0, 10, 3 * LARGE)
    assert memory.view[LARGE - 1] == 7  # Beyond what was to be kept: only a copy would leave it out.
    assert memory.used_bytes == 10


def test_what_was_reserved_and_not_written_to_does_not_count() -> None:
    memory = GrowingMemory(memoryview(b"0123456789"), LARGE)
    assert memory.is_large
    assert memory.used_bytes == 10
