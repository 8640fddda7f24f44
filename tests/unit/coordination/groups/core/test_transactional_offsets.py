"""Offsets that are committed in transactions: pending, then committed by a marker or dropped by it."""

import msgspec
import pytest

from quorate.coordination.core.effects import AppendCommitted, LogLoaded, TransactionalProducer
from quorate.coordination.groups.core.commands import (
    NO_GENERATION,
    NO_MEMBER_ID,
    CommitOffsets,
    CommitOffsetsResult,
    DeleteGroup,
    DeleteGroupResult,
    DescribeGroup,
    DescribeGroupResult,
    FetchOffsets,
    FetchOffsetsResult,
    SettlePendingOffsets,
    SettlePendingOffsetsResult,
)
from quorate.coordination.groups.core.effects import Append
from quorate.coordination.groups.core.records import decode_record, encode_key, encode_value
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_ID, GroupId, MemberId, ProducerEpoch, ProducerId
from quorate.records.control import EndTransactionMarker, TransactionEnd
from tests.unit.coordination.groups.core.conversation import AT_ONCE, GROUP, Conversation, commit_request, partition

PRODUCER = ProducerId(7)
OTHER_PRODUCER = ProducerId(8)


class TransactionalConversation(Conversation):
    """Its log keeps which records were written in a transaction, and the markers between them."""

    def __init__(self, *, log_commits: bool = True) -> None:
        self.committed: list[Append] = []
        super().__init__(log_commits=log_commits)

    def commit(self) -> None:
        while self.uncommitted:
            append = self.uncommitted.pop(0)
            self.committed.append(append)
            self.report(AppendCommitted(append=append))

    def restart(self) -> None:
        self.timers.clear()
        self.uncommitted.clear()
        self.shard = self.new_shard()
        for append in self.committed:
            producer_id = NO_PRODUCER_ID if append.transaction is None else append.transaction.producer_id
            for record in append.records:
                decoded = decode_record(encode_key(record), encode_value(record))
                assert decoded is not None
                self.shard.replay(decoded, producer_id)
            if append.end is not None:
                self.shard.replay_end(append.end.producer_id, is_commit=append.end.marker.is_commit)
        self.report(LogLoaded())

    def commit_in_transaction(self, offset: int, producer_id: ProducerId = PRODUCER) -> ErrorCode:
        result = self.ask(transactional(offset, producer_id=producer_id), CommitOffsetsResult)
        return result.errors[partition()]

    def end(self, producer_id: ProducerId = PRODUCER, *, commit: bool) -> ErrorCode:
        return self.ask(ending(producer_id, commit=commit), SettlePendingOffsetsResult).error

    def fetch(self, *, require_stable: bool = True) -> FetchOffsetsResult:
        command = FetchOffsets(group_id=GROUP, topic_partitions=(partition(),), require_stable=require_stable)
        return self.ask(command, FetchOffsetsResult)

    def is_stable(self) -> bool:
        return not self.fetch().unstable


def transactional(
    offset: int,
    member_id: MemberId = NO_MEMBER_ID,
    generation: int = NO_GENERATION,
    *,
    producer_id: ProducerId = PRODUCER,
) -> CommitOffsets:
    command = commit_request(offset, member_id, generation)
    return msgspec.structs.replace(command, transaction=TransactionalProducer(producer_id, ProducerEpoch(0)))


def ending(producer_id: ProducerId, *, commit: bool) -> SettlePendingOffsets:
    marker = EndTransactionMarker(is_commit=commit, coordinator_epoch=0)
    return SettlePendingOffsets(
        end=TransactionEnd(producer_id=producer_id, producer_epoch=ProducerEpoch(0), marker=marker)
    )


def test_an_offset_is_seen_when_its_transaction_is_committed() -> None:
    talk = TransactionalConversation()

    assert talk.commit_in_transaction(5) is ErrorCode.NONE
    assert talk.committed_offset() is None

    assert talk.end(commit=True) is ErrorCode.NONE
    assert talk.committed_offset() == 5
    assert talk.is_stable()


def test_an_offset_of_an_aborted_transaction_is_dropped() -> None:
    talk = TransactionalConversation()
    talk.ask(commit_request(3), CommitOffsetsResult)

    talk.commit_in_transaction(5)
    talk.end(commit=False)

    assert talk.committed_offset() == 3
    assert talk.is_stable()


def test_only_those_who_ask_for_stable_offsets_are_told_to_wait() -> None:
    talk = TransactionalConversation()
    talk.ask(commit_request(3), CommitOffsetsResult)
    talk.commit_in_transaction(5)

    waiting = talk.fetch(require_stable=True)
    assert waiting.unstable == {partition()}
    assert waiting.offsets == {}
    assert talk.fetch(require_stable=False).offsets[partition()].offset == 3
    everything = talk.ask(FetchOffsets(group_id=GROUP, topic_partitions=None, require_stable=True), FetchOffsetsResult)
    assert everything.unstable == {partition()}


def test_the_last_of_several_commits_in_a_transaction_counts() -> None:
    talk = TransactionalConversation()

    for offset in (5, 6, 7):
        talk.commit_in_transaction(offset)
    talk.end(commit=True)

    assert talk.committed_offset() == 7


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_decides_about_its_own_offsets_alone(commit: bool) -> None:
    talk = TransactionalConversation()
    talk.commit_in_transaction(5, PRODUCER)
    talk.commit_in_transaction(6, OTHER_PRODUCER)

    talk.end(PRODUCER, commit=commit)
    assert talk.committed_offset() == (5 if commit else None)
    assert not talk.is_stable()

    talk.end(OTHER_PRODUCER, commit=True)
    assert talk.committed_offset() == 6
    assert talk.is_stable()


def test_a_commit_outside_of_the_transaction_that_comes_later_in_the_log_counts() -> None:
    talk = TransactionalConversation()
    talk.commit_in_transaction(5)
    talk.ask(commit_request(9), CommitOffsetsResult)

    assert not talk.is_stable()
    talk.end(commit=True)

    assert talk.committed_offset() == 9
    assert talk.is_stable()


def test_a_marker_applies_to_commits_that_are_before_it_in_the_log() -> None:
    talk = TransactionalConversation(log_commits=False)
    commit = talk.send(transactional(5))
    end = talk.send(ending(PRODUCER, commit=True))

    assert talk.is_waiting(commit)
    assert talk.is_waiting(end)
    talk.commit()

    assert talk.committed_offset() == 5


def test_a_marker_that_is_not_written_decides_nothing() -> None:
    talk = TransactionalConversation(log_commits=False)
    talk.send(transactional(5))
    talk.commit()
    end = talk.send(ending(PRODUCER, commit=True))

    talk.fail_append(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    assert talk.reply(end, SettlePendingOffsetsResult).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert not talk.is_stable()


@pytest.mark.parametrize("restarts_before_marker", [True, False])
@pytest.mark.parametrize(("commit", "expected"), [(True, 5), (False, 3)])
def test_a_new_coordinator_knows_what_is_pending_and_what_was_decided(
    restarts_before_marker: bool, commit: bool, expected: int
) -> None:
    talk = TransactionalConversation()
    talk.ask(commit_request(3), CommitOffsetsResult)
    talk.commit_in_transaction(5)

    if restarts_before_marker:
        talk.restart()
        assert not talk.is_stable()
        talk.end(commit=commit)
    else:
        talk.end(commit=commit)
        talk.restart()

    assert talk.committed_offset() == expected
    assert talk.is_stable()


def test_a_shard_that_is_not_loaded_takes_no_marker() -> None:
    talk = TransactionalConversation()
    talk.shard = talk.new_shard()

    assert talk.end(commit=True) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_member_commits_in_its_generation_and_no_other() -> None:
    talk = TransactionalConversation()
    leader, _ = talk.stable_group(size=2)
    current = transactional(5, leader.member_id, leader.generation)
    late = transactional(5, leader.member_id, leader.generation - 1)
    stranger = transactional(5, MemberId("stranger"), leader.generation)

    assert talk.ask(current, CommitOffsetsResult).errors[partition()] is ErrorCode.NONE
    assert talk.ask(late, CommitOffsetsResult).errors[partition()] is ErrorCode.ILLEGAL_GENERATION
    assert talk.ask(stranger, CommitOffsetsResult).errors[partition()] is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_producer_that_names_no_member_may_commit_for_a_group_with_members() -> None:
    talk = TransactionalConversation()
    talk.stable_group(size=1)

    assert talk.commit_in_transaction(5) is ErrorCode.NONE


def test_a_generation_of_a_group_that_is_gone_is_refused() -> None:
    talk = TransactionalConversation()

    result = talk.ask(transactional(5, MemberId("member"), 3), CommitOffsetsResult)

    assert result.errors[partition()] is ErrorCode.ILLEGAL_GENERATION


def test_a_group_with_nothing_but_pending_offsets_exists() -> None:
    talk = TransactionalConversation()
    talk.commit_in_transaction(5)

    assert talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).error is ErrorCode.NONE
    unknown = talk.ask(DescribeGroup(group_id=GroupId("other")), DescribeGroupResult)
    assert unknown.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_do_not_come_back_with_the_marker_after_their_group_was_deleted() -> None:
    talk = TransactionalConversation()
    talk.commit_in_transaction(5)

    assert talk.ask(DeleteGroup(group_id=GROUP), DeleteGroupResult).error is ErrorCode.NONE
    talk.end(commit=True)
    assert talk.committed_offset() is None

    talk.restart()
    assert talk.committed_offset() is None


def test_an_offset_does_not_expire_while_a_transaction_may_replace_it() -> None:
    talk = TransactionalConversation()
    talk.ask(commit_request(3), CommitOffsetsResult)
    talk.commit_in_transaction(5)

    talk.advance(2 * AT_ONCE.offsets_retention_ms)
    assert talk.committed_offset() == 3

    talk.end(commit=False)
    talk.advance(2 * AT_ONCE.offsets_retention_check_interval_ms)
    assert talk.committed_offset() is None
