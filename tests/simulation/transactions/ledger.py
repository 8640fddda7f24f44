"""What producers know of their transactions, held against what others are shown while the cluster runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from tests.simulation.transactions.findings import Checker, report

PartitionNumber = int


@dataclass
class Attempts:
    """One request, sent as often as it takes."""

    first_sent_at: float | None = None
    sent_at: float = 0.0
    #: How many of them were never answered: those may still be on their way.
    lost: int = 0
    #: How many of them may have come to something though their sender was not told so.
    in_doubt: int = 0

    def sent(self, now: float) -> None:
        self.first_sent_at = now if self.first_sent_at is None else self.first_sent_at
        self.sent_at = now


@dataclass
class Incarnation:
    """One producer of a transactional id. Whoever gets a later epoch takes the id away from it."""

    transactional_id: str
    number: int
    timeout_ms: int
    #: Its requests for the id and, later, for another epoch. One that is lost may come late, and fence anybody.
    init: Attempts = field(default_factory=Attempts)
    #: What it was told first; before that it has no transactions.
    epoch: int = -1
    acknowledged_at: float | None = None
    #: Requests to add partitions were lost: one that comes late begins a transaction that nobody ends.
    has_lost_adds: bool = False


@dataclass
class Story:
    """One transaction, as its producer knows it."""

    incarnation: Incarnation
    number: int
    began_at: float
    #: Acknowledged, by partition, in order.
    records: dict[PartitionNumber, list[bytes]] = field(default_factory=dict)
    #: Acknowledged, of the producer's group.
    offset: Offset | None = None
    commit: Attempts = field(default_factory=Attempts)
    abort: Attempts = field(default_factory=Attempts)
    #: True: told that it is committed. False: told that it is not, or will never be.
    is_committed: bool | None = None

    def __str__(self) -> str:
        return f"{self.incarnation.transactional_id}/{self.incarnation.number}/{self.number}"

    @property
    def order(self) -> tuple[int, int]:
        return self.incarnation.epoch, self.number

    @property
    def may_be_committed(self) -> bool:
        return self.commit.first_sent_at is not None and self.is_committed is not False


class Ledger:
    def __init__(self) -> None:
        self.stories: list[Story] = []
        self.incarnations: dict[str, list[Incarnation]] = {}
        #: Of every record that was ever sent.
        self._of_values: dict[bytes, Story] = {}
        self._of_offsets: dict[tuple[str, Offset], Story] = {}

    @property
    def committed_count(self) -> int:
        return sum(story.is_committed is True for story in self.stories)

    # Producers tell what they do.

    def starts(self, transactional_id: str, timeout_ms: int) -> Incarnation:
        known = self.incarnations.setdefault(transactional_id, [])
        known.append(Incarnation(transactional_id, len(known), timeout_ms))
        return known[-1]

    def begins(self, incarnation: Incarnation, number: int, now: float) -> Story:
        story = Story(incarnation, number, now)
        self.stories.append(story)
        return story

    def writes(self, story: Story, values: Iterable[bytes]) -> None:
        self._of_values.update((value, story) for value in values)

    def commits_offset(self, story: Story, offset: Offset) -> None:
        self._of_offsets[story.incarnation.transactional_id, offset] = story

    # Producers tell what they were told.

    def was_written(self, story: Story, sent_at: float, what: str) -> None:
        self._check_fenced(story, sent_at, f"{what} of {story} was acknowledged")

    def was_committed(self, story: Story) -> None:
        self._check_fenced(story, story.commit.sent_at, f"the end of {story} was acknowledged")
        story.is_committed = True

    def was_aborted(self, story: Story) -> None:
        """One that was replaced is told so, or it might go on with the epoch of its successor."""
        self._check_fenced(story, story.abort.sent_at, f"the abort of {story} was acknowledged")
        story.is_committed = False

    def was_refused(self, story: Story) -> None:
        """It will not be committed, unless by an earlier attempt."""
        if not story.commit.in_doubt:
            story.is_committed = False

    def check_refusal(self, story: Story, error: ErrorCode, now: float) -> None:
        """Only who has a successor or takes too long is sent away."""
        if not (self._may_be_ended_by_others(story, now) or story.incarnation.has_lost_adds):
            report(Checker.REFUSAL, f"{story} was told {error!r} after {now - story.began_at:.3f} s, without a reason")

    def _may_be_ended_by_others(self, story: Story, now: float) -> bool:
        """It takes too long, or somebody may have taken the id."""
        one = story.incarnation
        return now - story.began_at >= one.timeout_ms / 1000 or any(
            rival.init.lost
            or rival.epoch > one.epoch
            or (rival.init.first_sent_at is not None and rival.acknowledged_at is None)
            for rival in self.incarnations[one.transactional_id]
        )

    def _check_fenced(self, story: Story, sent_at: float, what: str) -> None:
        taken_over_at = self.taken_over_at(story.incarnation)
        if taken_over_at is not None and sent_at > taken_over_at:
            report(Checker.FENCING, f"{what}, asked for {sent_at - taken_over_at:.3f} s after its successor began")

    def taken_over_at(self, incarnation: Incarnation) -> float | None:
        """When the first of its successors was told that the id is its own."""
        rivals = self.incarnations[incarnation.transactional_id]
        followers = [one for one in rivals if one.epoch > incarnation.epoch]
        return min((one.acknowledged_at for one in followers if one.acknowledged_at is not None), default=None)

    # Readers of committed records tell what they see.

    def story_of(self, value: bytes) -> Story:
        return self._of_values[value]

    def check_given(self, value: bytes, now: float, where: str) -> None:
        """Below the last stable offset nothing is open, whether it is shown in the end or left out."""
        story = self._of_values[value]
        is_asked_to_end = story.commit.first_sent_at is not None or story.abort.first_sent_at is not None
        if not (is_asked_to_end or self._may_be_ended_by_others(story, now)):
            report(Checker.STABLE_OFFSET, f"{value!r} {where} was given out while {story} is open")

    def check_shown(self, value: bytes, where: str) -> None:
        story = self._of_values[value]
        if not story.may_be_committed:
            how = "aborted" if story.is_committed is False else "never to be committed"
            report(Checker.ABORTED_READ, f"{value!r} {where} was shown, but {story} was {how}")

    def check_offset_shown(self, transactional_id: str, offset: Offset) -> None:
        story = self._of_offsets.get((transactional_id, offset))
        if story is None:
            report(Checker.ATOMICITY, f"offset {offset} of the group of {transactional_id} was never committed")
        if not story.may_be_committed:
            report(Checker.ABORTED_READ, f"offset {offset} was shown, but {story} was not committed")
