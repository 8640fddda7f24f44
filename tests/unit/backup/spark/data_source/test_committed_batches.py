"""Which batches of a backup count for a read-committed reader, wherever it begins and however far the markers are."""

from collections.abc import Iterator

import pytest

from quorate.backup.spark.data_source.transactions import AbortedInAnswer, BackupBatch, CommittedBatches
from quorate.client.fetch.batches import AbortedProducer
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import read_header
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, build_end_transaction_marker
from quorate.records.record import Record

PLAIN, ALICE, BOB = ProducerId(-1), ProducerId(1), ProducerId(2)

# Alice aborts, then commits; Bob commits around her; his second transaction never ends.
LOG = [
    (PLAIN, "data"),
    (ALICE, "data"),
    (BOB, "data"),
    (ALICE, "abort"),
    (ALICE, "data"),
    (PLAIN, "data"),
    (BOB, "commit"),
    (ALICE, "data"),
    (ALICE, "commit"),
    (BOB, "data"),
    (PLAIN, "data"),
]
COUNTED = [0, 2, 4, 5, 7, 10]


def batches() -> list[BackupBatch]:
    return [_batch(Offset(offset), producer, kind) for offset, (producer, kind) in enumerate(LOG)]


def batches_from(offset: Offset) -> Iterator[BackupBatch]:
    return (batch for batch in batches() if batch.base_offset >= offset)


@pytest.mark.parametrize("held_bytes", [0, 100, 10_000_000])
@pytest.mark.parametrize("start", range(len(LOG)))
def test_fate_is_found_from_any_start_however_little_may_be_held(start: int, held_bytes: int) -> None:
    found = CommittedBatches(batches_from(Offset(start)), batches_from, Offset(len(LOG)), held_bytes=held_bytes)
    assert [batch.base_offset for batch in found] == [offset for offset in COUNTED if offset >= start]


@pytest.mark.parametrize("end", range(len(LOG) + 1))
def test_marker_behind_the_end_is_found(end: int) -> None:
    found = CommittedBatches(batches_from(Offset(0)), batches_from, Offset(end))
    assert [batch.base_offset for batch in found] == [offset for offset in COUNTED if offset < end]


@pytest.mark.parametrize(("loss", "counted"), [(2, [0, 2, 4, 5, 7, 10]), (3, [0, 4, 5, 7, 10]), (8, [0, 2, 5, 10])])
def test_no_marker_counts_for_what_stands_before_a_loss(loss: int, counted: list[int]) -> None:
    found = CommittedBatches(batches_from(Offset(0)), batches_from, Offset(len(LOG)), losses=[Offset(loss)])
    assert [batch.base_offset for batch in found] == counted


def test_nothing_is_read_ahead_without_transactions() -> None:
    source = iter([_batch(Offset(offset), PLAIN, "data") for offset in range(5)])
    found = iter(CommittedBatches(source, batches_from, Offset(5)))
    assert next(found).base_offset == 0
    assert next(source).base_offset == 1


def test_live_answer_names_aborted_transactions_and_markers_end_them() -> None:
    aborted = AbortedInAnswer([AbortedProducer(ALICE, Offset(1)), AbortedProducer(BOB, Offset(9))])
    found = []
    for batch in batches():
        assert batch.header is not None
        if not aborted.excludes(batch.header, batch.data):
            found.append(batch.base_offset)
    assert found == COUNTED


def _batch(offset: Offset, producer: ProducerId, kind: str) -> BackupBatch:
    epoch = ProducerEpoch(0)
    if kind == "data":
        data = build_batch(
            [Record(offset, 1, b"k", b"v")],
            base_offset=offset,
            leader_epoch=LeaderEpoch(0),
            producer_id=producer,
            producer_epoch=epoch,
            is_transactional=producer != PLAIN,
        )
    else:
        marker = EndTransactionMarker(is_commit=kind == "commit", coordinator_epoch=0)
        data = build_end_transaction_marker(
            marker, producer_id=producer, producer_epoch=epoch, timestamp_ms=1, base_offset=offset
        )
    return BackupBatch(offset, read_header(data), data)
