"""Batches on their way through the gate into a partition, without a request around them."""

from typing import Any, cast

from quorate.broker.produce.gate import ProducedBatch, append
from quorate.records.batch import read_header
from quorate.replication.leading import require_leading
from quorate.replication.partition import Partition
from quorate.storage.appending import AppendInfo
from tests.unit.replication.replicas import NOW_MS


def produce(
    partition: Partition, batch: memoryview, *, acks_all: bool = False, transaction: object = None
) -> AppendInfo:
    """``transaction``: something that admits batches, in the place of a ``TransactionOfRequest``."""
    return append(
        require_leading(partition),
        ProducedBatch(batch, read_header(batch)),
        NOW_MS,
        acks_all=acks_all,
        transaction=cast(Any, transaction),
    )
