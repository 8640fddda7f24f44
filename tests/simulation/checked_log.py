"""What a node does before it reads what an earlier life of it has written, for checkers that read its logs."""

from quorate.storage.log import PartitionLog
from quorate.storage.segment_repair import repair


def check_segments(log: PartitionLog) -> None:
    """Check every segment that nobody has read since the start; nothing may be damaged."""
    for segment in log.stored_segments:
        if segment.is_checked and segment.indexes_are_checked:
            continue
        check = log.begin_check(segment)
        report = check.finish()
        assert not report.damage, f"{segment.path} is damaged: {report.damage}"
        assert log.note_check(check)
        if report.indexes_are_damaged or report.transactions_are_damaged:
            assert log.install_repair(repair(log.disk, log.plan_repair(segment, report), None))
