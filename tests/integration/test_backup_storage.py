"""The backup commands on S3, storage that fails in the middle, and objects that rot."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.errors import StorageError
from quorate.backup.manifest_catalog import ManifestCatalog
from quorate.backup.storage import open_storage
from quorate.backup.storage_url import StorageLocation
from quorate.kernel.errors import QuorateError
from quorate.pipeline import copy_task
from quorate.pipeline.verification import verify_quickly
from tests.backup_commands import BACKUP_ID, SMALL_RANGES, Backups, create_topics, produce, run_quorate
from tests.integration.backup_storage import object_servers
from tests.peers.quorate_node import QuorateNode
from tests.spark_session import InThisProcess, QuietWatcher, run_in_process

pytest.importorskip("pyspark")

TOPIC = "orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, 3))
        produce(node.bootstrap, TOPIC, 3000)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if object_servers.program("moto_server") is None:
        pytest.skip("moto_server is not installed")
    with object_servers.moto(tmp_path_factory.mktemp("moto") / "server.log") as endpoint:
        yield endpoint


def test_backup_to_s3_is_listed_and_verified(backups: Backups, endpoint: str) -> None:
    environment = os.environ | object_servers.ENVIRONMENT
    url = f"s3://{object_servers.BUCKET}/commands"
    config = backups.write_config(storage={"url": url, "endpoint": endpoint}, backup=SMALL_RANGES)

    done = run_quorate("backup", "--config", str(config), environment=environment)
    assert done.status == 0, done
    assert "3,000 records" in done.output

    place = ["--storage", url, "--endpoint", endpoint]
    listed = run_quorate("list-backups", *place, environment=environment)
    assert BACKUP_ID in listed.output
    verified = run_quorate("verify", *place, "--backup-id", BACKUP_ID, environment=environment)
    assert verified.status == 0, verified
    assert "0 damaged" in verified.output


def test_wrong_bucket_is_one_sentence_before_anything_is_copied(backups: Backups, endpoint: str) -> None:
    config = backups.write_config(storage={"url": "s3://no-such-bucket/x", "endpoint": endpoint})
    done = run_quorate("backup", "--config", str(config), environment=os.environ | object_servers.ENVIRONMENT)
    assert done.status == 1
    assert [line.startswith("quorate: ") for line in done.errors.splitlines()] == [True], done
    assert "no-such-bucket" in done.errors


def test_object_damaged_by_one_bit_is_named(backups: Backups) -> None:
    run_in_process(backups, backups.write_config(backup=SMALL_RANGES), InThisProcess)
    paths = backups.object_paths()
    assert len(paths) >= 3
    for path in paths:
        content = path.read_bytes()
        for position in (0, len(content) // 3, len(content) - 1):
            path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
            report = verify_quickly(open_storage(_location(backups)), backups.manifest(), QuietWatcher())
            assert [Path(damage.name).name for damage in report.damages] == [path.name]
        path.write_bytes(content)


@pytest.mark.parametrize("period", [1, 2, 3, 5, 8])
def test_storage_that_fails_at_every_nth_call_never_gets_a_manifest_with_a_missing_object(
    backups: Backups, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that fail are run again, as Spark does; a run that fails commits nothing."""
    calls = _Calls(period)
    monkeypatch.setattr(copy_task, "open_storage", lambda location: _Unreliable(open_storage(location), calls))
    config = backups.write_config(backup=SMALL_RANGES)
    try:
        run_in_process(backups, config, lambda: InThisProcess(attempts=4))
    except QuorateError:
        assert backups.catalog().numbers() == []
    else:
        report = verify_quickly(open_storage(_location(backups)), backups.manifest(), QuietWatcher())
        assert (report.record_count, report.damages) == (3000, [])
    assert calls.failed
    assert ManifestCatalog(open_storage(_location(backups)), BACKUP_ID).numbers() in ([], [1])


def _location(backups: Backups) -> StorageLocation:
    return StorageLocation(backups.url).below(BACKUP_ID)


class _Calls:
    def __init__(self, period: int) -> None:
        self._period = period
        self._count = 0
        self.failed = False

    def count(self) -> None:
        self._count += 1
        if self._count % self._period == 0:
            self.failed = True
            raise StorageError("the storage failed, as the test wants it to")


class _Unreliable:
    """An object storage and its uploads in one; every n-th call of either fails."""

    def __init__(self, inner: object, calls: _Calls) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._inner, name)
        if name not in ("open_upload", "write", "complete"):
            return attribute

        def call(*arguments: object) -> object:
            self._calls.count()
            result = attribute(*arguments)
            return _Unreliable(result, self._calls) if name == "open_upload" else result

        return call
