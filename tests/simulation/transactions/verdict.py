"""What readers of committed records have seen in the end, held against what producers know of each transaction."""

from collections.abc import Mapping

from quorate.kernel.ids import Offset
from tests.simulation.transactions.findings import Checker, report
from tests.simulation.transactions.ledger import Ledger, PartitionNumber, Story


class ShownRecords:
    """Of one partition, from its beginning: by id in the order of the transactions, and of the records in them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: dict[str, tuple[int, int, int]] = {}
        self.values: list[bytes] = []

    def add(self, value: bytes, where: str) -> None:
        story = self._ledger.story_of(value)
        transactional_id = story.incarnation.transactional_id
        place = (*story.order, int(value.rsplit(b".", 1)[1]))
        if place <= self._last.get(transactional_id, (-1, -1, -1)):
            report(Checker.ORDER, f"{value!r} comes after {self._last[transactional_id]} {where}")
        self._last[transactional_id] = place
        self.values.append(value)


def check_outcomes(
    ledger: Ledger, shown: Mapping[PartitionNumber, list[bytes]], offsets: Mapping[str, Offset | None]
) -> None:
    """In the end: what readers of committed records see of each transaction, everywhere."""
    by_story: dict[int, dict[PartitionNumber, list[bytes]]] = {}
    for partition, values in shown.items():
        for value in values:
            story = ledger.story_of(value)
            by_story.setdefault(id(story), {}).setdefault(partition, []).append(value)
    last_offsets: dict[str, tuple[tuple[int, int], Offset]] = {}
    for story in ledger.stories:
        seen = by_story.get(id(story), {})
        _check_outcome(ledger, story, seen)
        if seen and story.offset is not None:
            transactional_id = story.incarnation.transactional_id
            last_offsets[transactional_id] = max(
                last_offsets.get(transactional_id, ((-1, -1), Offset(-1))), (story.order, story.offset)
            )
    for transactional_id, offset in offsets.items():
        expected = last_offsets[transactional_id][1] if transactional_id in last_offsets else None
        if offset != expected:
            report(Checker.ATOMICITY, f"the group of {transactional_id} is at {offset}, its transactions at {expected}")


def _check_outcome(ledger: Ledger, story: Story, seen: Mapping[PartitionNumber, list[bytes]]) -> None:
    if not story.may_be_committed:
        if seen:
            report(Checker.ATOMICITY, f"{story} is not committed, and {seen} of it are shown")
        return
    if seen != story.records and (seen or story.is_committed):
        report(Checker.ATOMICITY, f"{story} has {story.records}, of which {seen} are shown")
    taken_over_at = ledger.taken_over_at(story.incarnation)
    assert story.commit.first_sent_at is not None
    if seen and taken_over_at is not None and story.commit.first_sent_at > taken_over_at:
        report(Checker.FENCING, f"{story} is committed, which was first asked for after its successor began")
