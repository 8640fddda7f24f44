"""Apache Kafka's own tool reads every file that a partition's log leaves on disk, and finds nothing wrong with it."""

import re
import subprocess
from pathlib import Path

import pytest

from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import Compression, iterate_batches, read_header
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, TransactionEnd
from quorate.records.record import Record, iterate_records
from quorate.storage.cleaner import clean
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.os_disk import OsDisk
from tests.peers.jars import java_command
from tests.peers.kafka_tools import MAIN_CLASSES, TOOL_TIMEOUT_S
from tests.proofs import KAFKA_TOOLS

pytestmark = [
    pytest.mark.peer,
    pytest.mark.usefixtures("kafka_classpath"),
    pytest.mark.proves(*KAFKA_TOOLS, "kafka-dump-log: segments, indexes, producer snapshots, transaction indexes"),
]

NOW_MS = 1_700_000_000_000
PRODUCER = ProducerId(7)
OTHER_PRODUCER = ProducerId(8)
CONFIG = LogConfig(
    segment_bytes=6000,
    index_interval_bytes=500,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
)
# What the tool prints where an index does not lead where it should, or a batch is not what its header says.
COMPLAINTS = ("Mismatches", "out of order", "not found", "not dense", "isvalid: false", "Invalid", "Error", "Exception")


def test_log_indexes_and_snapshots_pass_the_checks_of_the_tool(tmp_path: Path) -> None:
    written = _write_log(tmp_path / "orders-0", compacted=False)

    dump = _dump(tmp_path / "orders-0")

    assert _records_in(dump) == written
    assert f"producerId: {PRODUCER} producerEpoch: 0" in dump
    assert "lastSequence: 89 lastOffset: 179" in dump


def test_a_compacted_log_passes_the_checks_of_the_tool(tmp_path: Path) -> None:
    written = _write_log(tmp_path / "orders-0", compacted=True)

    dump = _dump(tmp_path / "orders-0")

    assert 0 < len(written) < 180
    assert _records_in(dump) == written
    assert "deleteHorizonMs: OptionalLong[" in dump


def test_transactions_and_their_index_pass_the_checks_of_the_tool(tmp_path: Path) -> None:
    log = PartitionLog.open(OsDisk(), str(tmp_path / "orders-0"), CONFIG)
    for sequence in range(0, 6, 2):
        for producer_id in (PRODUCER, OTHER_PRODUCER):
            batch = build_batch(
                [_record(sequence, delta) for delta in range(2)],
                producer_id=producer_id,
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
                is_transactional=True,
            )
            log.append_as_leader(
                memoryview(bytearray(batch)), [read_header(batch)], leader_epoch=LeaderEpoch(0), now_ms=NOW_MS
            )
        for producer_id in (PRODUCER, OTHER_PRODUCER):
            if sequence < 4 or producer_id is OTHER_PRODUCER:
                end = TransactionEnd(
                    producer_id=producer_id,
                    producer_epoch=ProducerEpoch(0),
                    marker=EndTransactionMarker(is_commit=producer_id is OTHER_PRODUCER, coordinator_epoch=3),
                )
                log.append_marker(end, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.close()

    dump = _dump(tmp_path / "orders-0")

    assert "version: 0 producerId: 7 firstOffset: 0 lastOffset: 4 lastStableOffset: 2" in dump
    assert "version: 0 producerId: 7 firstOffset: 6 lastOffset: 10 lastStableOffset: 8" in dump
    assert dump.count("endTxnMarker: ABORT coordinatorEpoch: 3") == 2
    assert dump.count("endTxnMarker: COMMIT coordinatorEpoch: 3") == 3
    assert "coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong[12]" in dump
    assert "coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty" in dump


def test_the_tool_complains_of_an_index_that_leads_elsewhere(tmp_path: Path) -> None:
    _write_log(tmp_path / "orders-0", compacted=False)
    index = tmp_path / "orders-0" / "00000000000000000000.index"
    entries = bytearray(index.read_bytes())
    entries[3] += 1
    index.write_bytes(entries)

    with pytest.raises(AssertionError, match="Mismatches"):
        _dump(tmp_path / "orders-0")


def _write_log(directory: Path, *, compacted: bool) -> list[tuple[int, str]]:
    """Batches of every codec, some with a producer and tombstones; returns the offsets and keys that are left."""
    disk = OsDisk()
    log = PartitionLog.open(disk, str(directory), CONFIG)
    sequence = 0
    for index in range(60):
        is_idempotent = index % 2 == 1
        batch = build_batch(
            [_record(index, delta) for delta in range(3)],
            producer_id=PRODUCER if is_idempotent else ProducerId(-1),
            producer_epoch=ProducerEpoch(0 if is_idempotent else -1),
            base_sequence=sequence if is_idempotent else -1,
            compression=Compression(index % 5),
        )
        sequence += 3 if is_idempotent else 0
        log.append_as_leader(
            memoryview(bytearray(batch)), [read_header(batch)], leader_epoch=LeaderEpoch(index // 20), now_ms=NOW_MS
        )
    log.sync()
    if compacted:
        plan = log.plan_cleaning(NOW_MS)
        assert plan is not None
        assert log.install(clean(disk, plan))
    log.close()
    return _records_of(log)


def _record(index: int, delta: int) -> Record:
    number = index * 3 + delta
    return Record(
        offset=Offset(delta),
        timestamp=NOW_MS + index * 10 + delta - (index % 3) * 15,
        key=b"key-%d" % (number % 17),
        value=None if number % 11 == 0 else b"v" * index * 3,
    )


def _records_of(log: PartitionLog) -> list[tuple[int, str]]:
    records: list[tuple[int, str]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, max_bytes=1 << 20, up_to_offset=log.log_end_offset).read()
        for position, header in iterate_batches(content, strict=True):
            records += [(record.offset, (record.key or b"").decode()) for record in iterate_records(content, position)]
            offset = header.next_offset
    return records


def _dump(directory: Path) -> str:
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)
    dump = _run_tool("--files", files, "--print-data-log", "--deep-iteration")
    checked = _run_tool("--files", files, "--index-sanity-check")
    assert checked.count("passed sanity check") == sum(
        1 for path in directory.iterdir() if path.suffix in {".index", ".timeindex"}
    )
    return dump


def _run_tool(*arguments: str) -> str:
    """What the tool printed. It ends with status 0 whatever it finds, and complains on standard error."""
    command = java_command(MAIN_CLASSES["kafka-dump-log"], *arguments)
    completed = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True)
    output = completed.stdout + completed.stderr
    assert not [line for line in output.splitlines() if any(word in line for word in COMPLAINTS)]
    return output


def _records_in(dump: str) -> list[tuple[int, str]]:
    return [(int(offset), key) for offset, key in re.findall(r"\| offset: (\d+) .* key: (\S+)", dump)]
