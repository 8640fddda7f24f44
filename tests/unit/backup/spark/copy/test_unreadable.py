import pytest

from quorate.backup.spark.copy.copy_task import find_sound_offset
from quorate.kernel.ids import Offset


@pytest.mark.parametrize("length", [1, 2, 3, 7, 500, 5000])
def test_reading_goes_on_right_behind_the_broken_batch(length: int) -> None:
    broken = range(100, 100 + length)
    found = find_sound_offset(lambda offset: offset not in broken, Offset(100), Offset(100_000))
    assert found == 100 + length


def test_broken_up_to_the_end_is_broken_up_to_the_end() -> None:
    assert find_sound_offset(lambda offset: False, Offset(100), Offset(3000)) == 3000


def test_batches_between_two_broken_ones_are_kept() -> None:
    def is_sound(offset: Offset) -> bool:
        return offset not in range(100, 110) and offset not in range(120, 130)

    assert find_sound_offset(is_sound, Offset(100), Offset(1000)) == 110
