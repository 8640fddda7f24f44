import msgspec
import pytest

from quorate.coordination.transactions.core.commands import InitProducer, ProducerIdNeeded
from quorate.coordination.transactions.core.decisions import init_producer
from quorate.coordination.transactions.core.shard import TransactionConfig
from quorate.coordination.transactions.core.transaction import MAX_PRODUCER_EPOCH, Transaction, TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId
from tests.unit.coordination.transactions.core.conversation import ID, P0, Conversation

EMPTY = Transaction(
    producer_id=ProducerId(7), producer_epoch=ProducerEpoch(3), timeout_ms=60_000, last_update_ms=0, client_version=2
)
ASKS = InitProducer(transactional_id=ID, timeout_ms=30_000)


def in_state(state: TransactionState, **changes: object) -> Transaction:
    return msgspec.structs.replace(EMPTY, state=state, **changes)


def expecting(producer_id: int, producer_epoch: int, new_id: int | None = None) -> InitProducer:
    return InitProducer(
        transactional_id=ID,
        timeout_ms=30_000,
        expected_producer_id=ProducerId(producer_id),
        expected_producer_epoch=ProducerEpoch(producer_epoch),
        new_producer_id=None if new_id is None else ProducerId(new_id),
    )


def decide(current: Transaction | None, command: InitProducer = ASKS) -> Transaction | ErrorCode | ProducerIdNeeded:
    return init_producer(current, command, is_pending=False, now_ms=50)


def decided(current: Transaction | None, command: InitProducer = ASKS) -> Transaction:
    outcome = decide(current, command)
    assert isinstance(outcome, Transaction)
    return outcome


def test_a_new_transactional_id_asks_for_a_producer_id_and_starts_with_epoch_0() -> None:
    assert isinstance(decide(None), ProducerIdNeeded)

    transaction = decided(None, msgspec.structs.replace(ASKS, new_producer_id=ProducerId(0)))

    assert (transaction.producer_id, transaction.producer_epoch) == (0, 0)
    assert transaction.state is TransactionState.EMPTY
    assert transaction.timeout_ms == 30_000


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_a_successor_gets_the_next_epoch_of_the_same_producer_id(state: TransactionState) -> None:
    transaction = decided(in_state(state, last_producer_epoch=2))

    assert (transaction.producer_id, transaction.producer_epoch) == (7, 4)
    assert transaction.state is TransactionState.EMPTY
    assert transaction.last_producer_epoch == NO_PRODUCER_EPOCH  # What its predecessor repeats counts no more.


def test_an_ongoing_transaction_is_aborted_first_with_an_epoch_that_its_producer_never_gets() -> None:
    transaction = decided(in_state(TransactionState.ONGOING, partitions=frozenset({P0}), start_ms=10))

    assert transaction.state is TransactionState.PREPARE_ABORT
    assert transaction.partitions == {P0}
    assert transaction.producer_epoch == 5


def test_a_producer_of_the_older_protocol_is_fenced_by_one_epoch() -> None:
    assert decided(in_state(TransactionState.ONGOING, client_version=0)).producer_epoch == 4


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_what_is_prepared_has_to_end_first(state: TransactionState) -> None:
    assert decide(in_state(state)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_nothing_is_decided_while_a_record_is_on_its_way() -> None:
    for current in (None, EMPTY, in_state(TransactionState.ONGOING)):
        outcome = init_producer(current, ASKS, is_pending=True, now_ms=50)
        assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_goes_on_after_an_error_with_its_next_epoch() -> None:
    transaction = decided(EMPTY, expecting(7, 3))

    assert (transaction.producer_epoch, transaction.last_producer_epoch) == (4, 3)


def test_a_repeat_of_going_on_is_answered_as_the_first_time() -> None:
    bumped = decided(EMPTY, expecting(7, 3))

    repeated = decided(bumped, expecting(7, 3))

    assert (repeated.producer_epoch, repeated.last_producer_epoch) == (4, 3)


def test_a_producer_whose_successor_has_come_is_fenced() -> None:
    bumped = decided(EMPTY)

    assert decide(bumped, expecting(7, 3)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("expected", [(8, 3), (7, 2), (7, 4), (6, MAX_PRODUCER_EPOCH - 1)])
def test_a_producer_that_expects_another_id_or_epoch_is_fenced(expected: tuple[int, int]) -> None:
    assert decide(EMPTY, expecting(*expected)) is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_cannot_abort_what_its_successor_has_begun() -> None:
    assert decide(in_state(TransactionState.ONGOING), expecting(6, 3)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_goes_on_late_does_not_end_what_its_successor_has_begun() -> None:
    ongoing = in_state(TransactionState.ONGOING, partitions=frozenset({P0}), start_ms=10, last_producer_epoch=2)

    assert decide(ongoing, expecting(7, 2)) is ErrorCode.PRODUCER_FENCED
    assert decided(ongoing, expecting(7, 3)).state is TransactionState.PREPARE_ABORT


def test_used_up_epochs_give_a_new_producer_id() -> None:
    exhausted = msgspec.structs.replace(EMPTY, producer_epoch=ProducerEpoch(MAX_PRODUCER_EPOCH - 1))
    assert isinstance(decide(exhausted), ProducerIdNeeded)
    assert isinstance(decide(exhausted, expecting(7, MAX_PRODUCER_EPOCH - 1)), ProducerIdNeeded)

    rotated = decided(exhausted, expecting(7, MAX_PRODUCER_EPOCH - 1, new_id=9))

    assert (rotated.producer_id, rotated.producer_epoch, rotated.previous_producer_id) == (9, 0, 7)
    repeated = decided(rotated, expecting(7, MAX_PRODUCER_EPOCH - 1))
    assert (repeated.producer_id, repeated.producer_epoch) == (9, 0)


def test_fencing_the_last_epoch_leaves_none_and_the_successor_gets_a_new_producer_id() -> None:
    last = in_state(TransactionState.ONGOING, producer_epoch=ProducerEpoch(MAX_PRODUCER_EPOCH - 1))

    assert decided(last).producer_epoch == MAX_PRODUCER_EPOCH
    ended = in_state(TransactionState.COMPLETE_ABORT, producer_epoch=MAX_PRODUCER_EPOCH)
    assert isinstance(decide(ended), ProducerIdNeeded)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_bounds_are_refused(timeout_ms: int) -> None:
    conversation = Conversation(TransactionConfig(max_timeout_ms=900_000))

    assert conversation.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert conversation.init(timeout_ms=900_000).error is ErrorCode.NONE
