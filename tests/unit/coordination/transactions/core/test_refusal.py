"""Which results a producer acts on for good, and so has to have from the true coordinator."""

import pytest

from quorate.coordination.transactions.core.commands import (
    AddPartitionsResult,
    EndTransactionResult,
    InitProducerResult,
    ProducerIdNeeded,
    Result,
    VerifyPartitionsResult,
)
from quorate.coordination.transactions.core.decisions import binds
from quorate.kernel.errors import ErrorCode
from tests.unit.coordination.transactions.core.conversation import P0


@pytest.mark.parametrize(
    "result",
    [
        EndTransactionResult(),
        EndTransactionResult(error=ErrorCode.PRODUCER_FENCED),
        InitProducerResult(error=ErrorCode.PRODUCER_FENCED),
        AddPartitionsResult(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        VerifyPartitionsResult(missing=frozenset({P0})),
        VerifyPartitionsResult(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_a_producer_acts_on_for_good(result: Result) -> None:
    assert binds(result)


@pytest.mark.parametrize(
    "result",
    [
        ProducerIdNeeded(),
        VerifyPartitionsResult(),
        EndTransactionResult(error=ErrorCode.CONCURRENT_TRANSACTIONS),
        AddPartitionsResult(error=ErrorCode.NOT_COORDINATOR),
        InitProducerResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_what_only_makes_it_come_again(result: Result) -> None:
    assert not binds(result)
