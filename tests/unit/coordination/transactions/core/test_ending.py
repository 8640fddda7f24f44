import msgspec
import pytest

from quorate.coordination.transactions.core.commands import EndTransaction, ProducerIdNeeded
from quorate.coordination.transactions.core.decisions import end_transaction
from quorate.coordination.transactions.core.transaction import (
    MAX_PRODUCER_EPOCH,
    Transaction,
    TransactionState,
    completed,
    fenced,
)
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tests.unit.coordination.transactions.core.conversation import ID, P0

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
LAST_EPOCH = ProducerEpoch(MAX_PRODUCER_EPOCH - 1)


def transaction(state: TransactionState, *, version: int, epoch: int = 3) -> Transaction:
    return Transaction(
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(epoch),
        timeout_ms=60_000,
        last_update_ms=0,
        state=state,
        start_ms=10 if state is not EMPTY else -1,
        partitions=frozenset({P0}) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else frozenset(),
        client_version=version,
    )


def ends(
    *, commits: bool, version: int, producer: tuple[int, int] = (7, 3), new_id: int | None = None
) -> EndTransaction:
    return EndTransaction(
        transactional_id=ID,
        producer_id=ProducerId(producer[0]),
        producer_epoch=ProducerEpoch(producer[1]),
        commits=commits,
        client_version=version,
        new_producer_id=None if new_id is None else ProducerId(new_id),
    )


def decide(current: Transaction | None, command: EndTransaction) -> Transaction | ErrorCode | ProducerIdNeeded:
    return end_transaction(current, command, is_pending=False, now_ms=50)


def prepared(current: Transaction, command: EndTransaction) -> Transaction:
    outcome = decide(current, command)
    assert isinstance(outcome, Transaction)
    return outcome


@pytest.mark.parametrize(
    ("state", "commits", "outcome"),
    [
        (EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (ONGOING, True, PREPARE_COMMIT),
        (ONGOING, False, PREPARE_ABORT),
        (PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (COMPLETE_COMMIT, True, ErrorCode.NONE),
        (COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, False, ErrorCode.NONE),
    ],
)
def test_the_older_protocol_goes_by_the_state(
    state: TransactionState, commits: bool, outcome: TransactionState | ErrorCode
) -> None:
    decided = decide(transaction(state, version=0), ends(commits=commits, version=0))

    if isinstance(outcome, ErrorCode):
        assert decided is outcome
    else:
        assert isinstance(decided, Transaction)
        assert (decided.state, decided.producer_epoch, decided.partitions) == (outcome, 3, frozenset({P0}))


@pytest.mark.parametrize(
    ("state", "commits", "outcome"),
    [
        (EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (EMPTY, False, PREPARE_ABORT),
        (ONGOING, True, PREPARE_COMMIT),
        (ONGOING, False, PREPARE_ABORT),
        (PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        # The current epoch: not the request that ended the last transaction, but one about the next.
        (COMPLETE_COMMIT, True, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_COMMIT, False, PREPARE_ABORT),
        (COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, False, PREPARE_ABORT),
    ],
)
def test_the_newer_protocol_gives_every_transaction_an_epoch(
    state: TransactionState, commits: bool, outcome: TransactionState | ErrorCode
) -> None:
    decided = decide(transaction(state, version=2), ends(commits=commits, version=2))

    if isinstance(outcome, ErrorCode):
        assert decided is outcome
    else:
        assert isinstance(decided, Transaction)
        assert (decided.state, decided.producer_epoch, decided.last_producer_epoch) == (outcome, 4, 3)
        assert decided.start_ms == (10 if state is ONGOING else 50)


@pytest.mark.parametrize(
    ("state", "commits", "outcome"),
    [
        (COMPLETE_COMMIT, True, ErrorCode.NONE),
        (COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, False, ErrorCode.NONE),
        (COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (ONGOING, True, ErrorCode.PRODUCER_FENCED),
        (ONGOING, False, ErrorCode.PRODUCER_FENCED),
        (EMPTY, False, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_repeat_names_the_epoch_before_and_never_ends_the_next_transaction(
    state: TransactionState, commits: bool, outcome: ErrorCode
) -> None:
    current = transaction(state, version=2, epoch=4)

    assert decide(current, ends(commits=commits, version=2, producer=(7, 3))) is outcome


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("producer", "error"),
    [
        ((8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((7, 2), ErrorCode.PRODUCER_FENCED),
        ((7, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_producer_of_the_current_epoch_ends(version: int, producer: tuple[int, int], error: ErrorCode) -> None:
    current = transaction(ONGOING, version=version)

    assert decide(current, ends(commits=True, version=version, producer=producer)) is error
    assert decide(None, ends(commits=True, version=version)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 2])
def test_nothing_is_decided_while_a_record_is_on_its_way(version: int) -> None:
    command = ends(commits=True, version=version)
    outcome = end_transaction(transaction(ONGOING, version=version), command, is_pending=True, now_ms=50)

    assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("commits", [True, False])
def test_a_producer_that_was_fenced_is_not_answered_as_one_that_repeats(commits: bool) -> None:
    aborted = completed(fenced(transaction(ONGOING, version=2), 60), 70)

    assert aborted.state is COMPLETE_ABORT
    assert decide(aborted, ends(commits=commits, version=2)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("commits", [True, False])
def test_who_was_replaced_by_a_producer_of_the_older_protocol_is_not_answered_as_one_that_repeats(
    commits: bool,
) -> None:
    ended_by_successor = transaction(COMPLETE_COMMIT if commits else COMPLETE_ABORT, version=0, epoch=4)

    assert decide(ended_by_successor, ends(commits=commits, version=2)) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    current = transaction(ONGOING, version=2, epoch=LAST_EPOCH)
    request = ends(commits=True, version=2, producer=(7, LAST_EPOCH))
    assert isinstance(decide(current, request), ProducerIdNeeded)

    ending = prepared(current, ends(commits=True, version=2, producer=(7, LAST_EPOCH), new_id=0))

    assert (ending.producer_id, ending.producer_epoch) == (7, MAX_PRODUCER_EPOCH)  # Of the markers.
    assert ending.following_producer == (0, 0)
    ended = completed(ending, 70)
    assert (ended.producer_id, ended.producer_epoch, ended.next_producer_id) == (0, 0, NO_PRODUCER_ID)
    assert decide(ended, request) is ErrorCode.NONE


def test_a_fenced_last_epoch_is_not_taken_for_a_repeat() -> None:
    aborted = completed(fenced(transaction(ONGOING, version=2, epoch=LAST_EPOCH), 60), 70)

    outcome = decide(aborted, ends(commits=False, version=2, producer=(7, LAST_EPOCH)))

    assert outcome is ErrorCode.PRODUCER_FENCED


def test_completion_keeps_who_the_producer_is_and_drops_the_partitions() -> None:
    ended = completed(prepared(transaction(ONGOING, version=0), ends(commits=True, version=0)), 70)

    assert ended == msgspec.structs.replace(
        transaction(COMPLETE_COMMIT, version=0), last_update_ms=70, previous_producer_id=ProducerId(7)
    )
