"""Files of a log that somebody removed or emptied: their records are damaged, and not deleted."""

import pytest

from quorate.kernel.ids import Offset
from quorate.storage.log import PartitionLog
from quorate.storage.reading import DamagedRecords
from quorate.storage.segment_repair import repair
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import DIRECTORY, batch_of
from tests.unit.storage.test_rot import VALUES, check_all, closed_log, open_untrusted, parts_of, readable_values

FIRST, SECOND, THIRD = (f"{DIRECTORY}/{base:020}.log" for base in (0, 3, 6))


def repair_all(disk: SimulatedDisk, log: PartitionLog) -> None:
    """As another replica gives them, which has all of the records."""
    for segment in [each for each in log.stored_segments if each.damage]:
        check = log.begin_check(segment)
        plan = log.plan_repair(segment, check.finish())
        (damaged,) = plan.damage
        lost = [batch_of(VALUES[at], base_offset=Offset(at)) for at in range(damaged.first_offset, damaged.end_offset)]
        assert log.install_repair(repair(disk, plan, parts_of(disk, [b"".join(lost)])))


@pytest.mark.parametrize(("path", "lost"), [(FIRST, (0, 3)), (SECOND, (3, 6)), (THIRD, (6, 8))])
@pytest.mark.parametrize("is_removed", [True, False])
def test_a_segment_that_is_gone_is_damage(
    disk: SimulatedDisk, path: str, lost: tuple[int, int], is_removed: bool
) -> None:
    closed_log(disk)
    if is_removed:
        disk.remove(path)
    else:
        disk.open(path).truncate(0)

    log = open_untrusted(disk)

    assert (log.log_start_offset, log.log_end_offset) == (0, 8)
    assert check_all(disk, log) == [lost]
    assert readable_values(log) == {at: value for at, value in enumerate(VALUES) if at not in range(*lost)}
    with pytest.raises(DamagedRecords):
        log.read(Offset(lost[0]), max_bytes=1, up_to_offset=log.log_end_offset, minimum_one_batch=True)
    repair_all(disk, log)
    assert readable_values(log) == dict(enumerate(VALUES))
