"""Apache Kafka's own log dump reads what we build: its reader is stricter than the Python clients'."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import Compression
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, build_end_transaction_marker
from quorate.records.record import Record
from tests.peers.kafka_tools import ToolShell
from tests.unit.records.golden.content import GOLDEN_RECORDS


def dump(shell: ToolShell, folder: Path, batches: bytes) -> str:
    segment = folder / "00000000000000000000.log"
    segment.write_bytes(batches)
    return shell.run("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", str(segment))


@pytest.mark.peer
@pytest.mark.parametrize("codec", Compression)
def test_records_of_every_codec(tool_shell: ToolShell, tmp_path: Path, codec: Compression) -> None:
    large = Record(Offset(5), 1_700_000_000_000, b"large", b"several lz4 and snappy blocks " * 10_000)
    output = dump(tool_shell, tmp_path, build_batch([*GOLDEN_RECORDS, large], compression=codec))

    assert f"compresscodec: {codec.name.lower()}" in output
    assert "isvalid: true" in output
    assert re.findall(r"\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+)", output) == [
        tuple(
            str(number)
            for number in (
                record.offset,
                record.timestamp,
                -1 if record.key is None else len(record.key),
                -1 if record.value is None else len(record.value),
            )
        )
        for record in (*GOLDEN_RECORDS, large)
    ]
    assert "headerKeys: [trace,trace,empty,größe]" in output


@pytest.mark.peer
def test_sparse_batch_empty_batch_and_marker(tool_shell: ToolShell, tmp_path: Path) -> None:
    sparse = build_batch(
        [replace(record, offset=record.offset * 2) for record in GOLDEN_RECORDS],
        last_offset_delta=9,
        delete_horizon_ms=1_800_000_000_000,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(1),
        base_sequence=12,
    )
    empty = build_batch([], base_offset=Offset(10), last_offset_delta=4)
    marker = build_end_transaction_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=9),
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(1),
        timestamp_ms=1_700_000_000_000,
        base_offset=Offset(15),
    )

    output = dump(tool_shell, tmp_path, sparse + empty + marker)

    assert "baseOffset: 0 lastOffset: 9 count: 5 baseSequence: 12 lastSequence: 21 producerId: 7" in output
    assert "deleteHorizonMs: OptionalLong[1800000000000]" in output
    assert "baseOffset: 10 lastOffset: 14 count: 0" in output
    assert "endTxnMarker: COMMIT coordinatorEpoch: 9" in output
    assert output.count("isvalid: true") == 3
