import pytest

from quorate.coordination.core.effects import CommandReceived, LeadershipLost, Token
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTransactionResult,
    InitProducer,
    InitProducerResult,
    ListTransactions,
    ListTransactionsResult,
)
from quorate.coordination.transactions.core.effects import CompletionTimer, ExpiryTimer, TimeoutTimer
from quorate.coordination.transactions.core.shard import TransactionConfig, TransactionCoordinatorShard
from quorate.coordination.transactions.core.transaction import TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerEpoch, ProducerId, TransactionalId
from tests.unit.coordination.transactions.core.conversation import ID, P0, P1, Conversation


def test_a_commit_is_answered_when_it_is_decided_and_complete_when_all_markers_are_written() -> None:
    conversation = Conversation()
    producer = conversation.new_producer()
    assert conversation.add(producer, P0) is ErrorCode.NONE
    assert conversation.add(producer, P1) is ErrorCode.NONE

    result = conversation.end(producer, commits=True)

    assert result == EndTransactionResult(producer_id=producer[0], producer_epoch=ProducerEpoch(1))
    assert conversation.described().state is TransactionState.PREPARE_COMMIT
    (markers,) = conversation.markers
    assert (markers.producer_epoch, markers.commits, markers.partitions) == (1, True, frozenset({P0, P1}))
    assert markers.transaction_version == 2
    assert conversation.add((producer[0], result.producer_epoch), P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    conversation.write_markers()
    assert conversation.described().state is TransactionState.COMPLETE_COMMIT
    assert conversation.add((producer[0], result.producer_epoch), P0) is ErrorCode.NONE


def test_no_answer_before_the_record_is_committed_and_nothing_else_is_decided_meanwhile() -> None:
    conversation = Conversation()
    producer = conversation.new_producer()
    conversation.add(producer, P0)
    conversation.holds_appends = True
    command = InitProducer(transactional_id=ID, timeout_ms=1)

    token = conversation.send(command)

    assert token not in conversation.replies
    assert conversation.markers == []
    assert conversation.end(producer, commits=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    conversation.commit_appends()
    assert conversation.replies[token] == InitProducerResult(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert [markers.commits for markers in conversation.markers] == [False]


def test_a_second_instance_aborts_what_the_first_has_begun_and_fences_it() -> None:
    conversation = Conversation()
    first = conversation.new_producer()
    conversation.add(first, P0)

    assert conversation.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert conversation.init().error is ErrorCode.CONCURRENT_TRANSACTIONS  # The marker is not written yet.
    conversation.write_markers()
    second = conversation.new_producer()

    assert second[0] == first[0]
    assert conversation.end(first, commits=True).error is ErrorCode.PRODUCER_FENCED
    assert conversation.add(first, P0) is ErrorCode.PRODUCER_FENCED
    assert conversation.init(expected=first).error is ErrorCode.PRODUCER_FENCED
    assert conversation.add(second, P0) is ErrorCode.NONE


@pytest.mark.parametrize("commits", [True, False])
def test_an_instance_is_not_given_the_epoch_of_a_second_one_that_speaks_the_older_protocol(commits: bool) -> None:
    conversation = Conversation()
    first = conversation.new_producer()
    second = conversation.new_producer()
    assert conversation.add(second, P0, version=0) is ErrorCode.NONE
    assert conversation.end(second, commits=commits, version=0).error is ErrorCode.NONE
    conversation.write_markers()

    for coordinator in (conversation, conversation.restart()):
        assert coordinator.end(first, commits=commits) == EndTransactionResult(error=ErrorCode.PRODUCER_FENCED)


def test_an_empty_transaction_is_aborted_without_markers() -> None:
    conversation = Conversation()
    producer = conversation.new_producer()

    result = conversation.end(producer, commits=False)

    assert result == EndTransactionResult(producer_id=producer[0], producer_epoch=ProducerEpoch(1))
    assert conversation.markers == []
    assert conversation.described().state is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("commits", [True, False])
def test_the_next_coordinator_sends_the_markers_of_what_is_decided(commits: bool) -> None:
    dying = Conversation()
    producer = dying.new_producer()
    dying.add(producer, P0, P1)
    dying.end(producer, commits=commits)

    successor = dying.restart()

    assert successor.markers == dying.markers
    assert successor.end(producer, commits=commits).error is ErrorCode.CONCURRENT_TRANSACTIONS
    successor.write_markers()
    again = successor.end(producer, commits=commits)
    assert again == EndTransactionResult(producer_id=producer[0], producer_epoch=ProducerEpoch(1))


def test_the_next_coordinator_leaves_an_ongoing_transaction_to_its_producer() -> None:
    dying = Conversation()
    producer = dying.new_producer()
    dying.add(producer, P0)

    successor = dying.restart()

    assert successor.markers == []
    assert successor.verify(producer, P0).missing == frozenset()
    assert successor.end(producer, commits=True).error is ErrorCode.NONE


def test_a_transaction_that_outlives_its_timeout_is_aborted_and_its_producer_fenced() -> None:
    conversation = Conversation()
    result = conversation.init(timeout_ms=15_000)
    producer = result.producer_id, result.producer_epoch
    conversation.add(producer, P0)

    conversation.fire(TimeoutTimer())
    assert conversation.described().state is TransactionState.ONGOING
    conversation.fire(TimeoutTimer())

    assert conversation.described().state is TransactionState.PREPARE_ABORT
    conversation.write_markers()
    assert conversation.described().state is TransactionState.COMPLETE_ABORT
    assert conversation.end(producer, commits=True).error is ErrorCode.PRODUCER_FENCED
    assert TimeoutTimer() in conversation.timers


def test_a_timeout_counts_from_the_start_of_the_transaction_also_after_a_change_of_coordinator() -> None:
    dying = Conversation()
    result = dying.init(timeout_ms=5_000)
    dying.add((result.producer_id, result.producer_epoch), P0)
    successor = dying.restart()

    successor.fire(TimeoutTimer())

    assert successor.described().state is TransactionState.PREPARE_ABORT


def test_idle_transactional_ids_are_forgotten_and_others_are_not() -> None:
    conversation = Conversation(TransactionConfig(id_expiration_ms=1_000, expiry_check_interval_ms=5_000))
    producer = conversation.new_producer()
    conversation.add(producer, P0)
    conversation.fire(ExpiryTimer())
    assert conversation.described().state is TransactionState.ONGOING
    conversation.end(producer, commits=True)
    conversation.fire(ExpiryTimer())
    assert conversation.described().state is TransactionState.PREPARE_COMMIT
    conversation.write_markers()

    conversation.fire(ExpiryTimer())

    assert conversation.log[-1].transaction is None
    result = conversation.ask(DescribeTransaction(transactional_id=ID), DescribeTransactionResult)
    assert result.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert conversation.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert conversation.restart().new_producer()[0] != producer[0]


def test_a_failed_append_is_told_and_leaves_everything_as_it_was() -> None:
    conversation = Conversation()
    producer = conversation.new_producer()
    conversation.add(producer, P0)
    conversation.holds_appends = True
    token = conversation.send(InitProducer(transactional_id=ID, timeout_ms=1))

    conversation.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert conversation.replies[token] == InitProducerResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert conversation.described().state is TransactionState.ONGOING
    conversation.holds_appends = False
    assert conversation.end(producer, commits=True).error is ErrorCode.NONE


def test_an_end_that_could_not_be_written_is_written_again() -> None:
    conversation = Conversation()
    producer = conversation.new_producer()
    conversation.add(producer, P0)
    conversation.end(producer, commits=True)
    conversation.holds_appends = True
    conversation.write_markers()
    conversation.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert conversation.described().state is TransactionState.PREPARE_COMMIT

    conversation.fire(CompletionTimer(transactional_id=ID))
    conversation.commit_appends()

    assert conversation.described().state is TransactionState.COMPLETE_COMMIT


def test_a_failed_abort_of_a_timed_out_transaction_is_tried_at_the_next_check() -> None:
    conversation = Conversation()
    conversation.add(conversation.new_producer(), P0)
    conversation.now_ms += 3_600_000
    conversation.holds_appends = True
    conversation.fire(TimeoutTimer())
    conversation.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)

    conversation.fire(TimeoutTimer())
    conversation.commit_appends()

    assert conversation.described().state is TransactionState.PREPARE_ABORT


def test_a_coordinator_that_loses_its_partition_sends_those_who_wait_to_the_next() -> None:
    conversation = Conversation()
    conversation.holds_appends = True
    command = InitProducer(transactional_id=ID, timeout_ms=1, new_producer_id=ProducerId(1))
    token = conversation.send(command)

    conversation.report(LeadershipLost())

    assert conversation.replies[token] == InitProducerResult(error=ErrorCode.NOT_COORDINATOR)


def _claim(producer_id: int, epoch: int) -> AddPartitions:
    return AddPartitions(
        transactional_id=ID,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        partitions=frozenset({P1}),
        client_version=2,
    )


@pytest.mark.parametrize("later", [(1, 0), (0, 1)])
def test_nobody_is_sent_away_for_good_while_a_record_about_the_id_is_on_its_way(later: tuple[int, int]) -> None:
    conversation = Conversation()
    producer = conversation.new_producer()
    conversation.add(producer, P0)
    conversation.holds_appends = True
    decided = conversation.send(_claim(producer[0], producer[1]))
    other = _claim(producer[0] + later[0], producer[1] + later[1])

    early = conversation.send(other)
    conversation.commit_appends()
    late = conversation.send(other)

    assert conversation.replies[early] == AddPartitionsResult(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert conversation.replies[decided] == AddPartitionsResult()
    refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING if later[0] else ErrorCode.PRODUCER_FENCED
    assert conversation.replies[late] == AddPartitionsResult(error=refusal)


def test_nothing_is_answered_before_the_log_is_read() -> None:
    shard = TransactionCoordinatorShard(TransactionConfig())
    event = CommandReceived(token=Token(1), command=InitProducer(transactional_id=ID, timeout_ms=1))

    (reply,) = shard.handle(event, 0)

    assert reply.result == InitProducerResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # type: ignore[union-attr]


def test_listing_filters_by_state_producer_and_age() -> None:
    conversation = Conversation()
    producer = conversation.new_producer()
    conversation.add(producer, P0)
    other = TransactionalId("other")
    conversation.send(InitProducer(transactional_id=other, timeout_ms=1, new_producer_id=ProducerId(5)))
    conversation.now_ms += 500

    def listed(command: ListTransactions) -> set[str]:
        return {name for name, _ in conversation.ask(command, ListTransactionsResult).transactions}

    assert listed(ListTransactions()) == {ID, "other"}
    assert listed(ListTransactions(states=frozenset({TransactionState.EMPTY}))) == {"other"}
    assert listed(ListTransactions(producer_ids=frozenset({producer[0]}))) == {ID}
    assert listed(ListTransactions(min_duration_ms=499)) == {ID}
    assert listed(ListTransactions(min_duration_ms=500)) == set()
