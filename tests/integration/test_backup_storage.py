"""The backup commands on cloud stores, storage that fails in the middle, and objects that rot."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.errors import StorageError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.spark.copy import copy_task
from quorate.backup.spark.upkeep.verification import take_inventory, verify_quickly
from quorate.kernel.errors import QuorateError
from tests.backup_commands import BACKUP_ID, SMALL_RANGES, Backups, create_topics, produce, run_quorate
from tests.integration.backup_storage import azurite, google_server, object_servers
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of
from tests.spark_session import InThisProcess, QuietWatcher, run_in_process

pytest.importorskip("pyspark")

TOPIC = "orders"
#: Not what was restored beside it.
ORIGINAL = {"include": [TOPIC]}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, 3))
        produce(node.bootstrap, TOPIC, 3000)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


class CloudStore(NamedTuple):
    """A server, and how the commands reach it."""

    url: str
    endpoint: str
    environment: Mapping[str, str]
    #: One of each kind of library below; Spark takes its time to start.
    is_verified_deeply: bool = True


@pytest.fixture(scope="module", params=["moto", "seaweedfs", "azurite", "google"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudStore]:
    folder = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as stack:
        if request.param == "azurite":
            try:
                azurite.fetch()
            except azurite.AzuriteUnavailableError as error:
                pytest.skip(str(error))
            endpoint = stack.enter_context(azurite.azurite(folder))
            yield CloudStore(f"az://{azurite.CONTAINER}/commands", endpoint, azurite.ENVIRONMENT)
            return
        if request.param == "google":
            endpoint = stack.enter_context(google_server.google_server())
            yield CloudStore(f"gs://{google_server.BUCKET}/commands", endpoint, google_server.ENVIRONMENT)
            return
        if request.param == "moto":
            endpoint = stack.enter_context(object_servers.moto(folder / "server.log"))
        else:
            endpoint = stack.enter_context(object_servers.seaweedfs(folder))
        is_first = request.param == "moto"
        yield CloudStore(f"s3://{object_servers.BUCKET}/commands", endpoint, object_servers.ENVIRONMENT, is_first)


def test_backup_to_a_cloud_store_is_listed_verified_and_restored(
    node: QuorateNode, backups: Backups, store: CloudStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | store.environment
    config = backups.write_config(
        topics=ORIGINAL, storage={"url": store.url, "endpoint": store.endpoint}, backup=SMALL_RANGES
    )

    done = run_quorate("backup", "--config", str(config), environment=environment)
    assert done.status == 0, done
    assert "3,000 records" in done.output

    place = ["--storage", store.url, "--endpoint", store.endpoint]
    listed = run_quorate("list-backups", *place, environment=environment)
    assert BACKUP_ID in listed.output
    deep = ["--deep"] if store.is_verified_deeply else []
    verified = run_quorate("verify", *place, "--backup-id", BACKUP_ID, *deep, environment=environment)
    assert verified.status == 0, verified
    assert "0 damaged" in verified.output

    for key, value in store.environment.items():
        monkeypatch.setenv(key, value)
    target = f"{TOPIC}-{urlsplit(store.endpoint).port}"
    restores = Restores(backups, node.bootstrap, storage={"url": store.url, "endpoint": store.endpoint})
    restores.run_in_process(topic_mapping={TOPIC: target})
    with client_of(node.bootstrap) as client:
        for partition in range(3):
            expected = all_records(client, TOPIC, partition)
            assert expected
            assert all_records(client, target, partition) == expected


def test_object_damaged_by_one_bit_is_named(tmp_path: Path) -> None:
    """Every object of two runs, segments and manifests, at many places: the quick check finds them all."""
    with QuorateNode.start(tmp_path / "node", settings={"durability": "os"}) as node:
        backups = Backups(tmp_path, node.bootstrap)
        config = backups.write_config(topics=ORIGINAL, backup=SMALL_RANGES | {"mode": "incremental"})
        create_topics(node.bootstrap, NewTopic(TOPIC, 3))
        for _ in range(2):
            produce(node.bootstrap, TOPIC, 100)
            run_in_process(backups, config, InThisProcess)
    root = backups.folder / "storage" / BACKUP_ID
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    assert len(paths) >= 3 + 3 + 2
    assert _damages(backups) == []
    for path in paths:
        content = path.read_bytes()
        for position in {0, len(content) - 1, *range(0, len(content), len(content) // 20)}:
            damaged = bytearray(content)
            damaged[position] ^= 1 << position % 8
            path.write_bytes(damaged)
            assert _damages(backups) == [str(path.relative_to(root))]
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("segment", []), ("segment", ["--deep"]), ("newest manifest", []), ("older manifest", ["--deep"])],
)
def test_verify_names_the_damaged_object_and_says_so_by_its_status(
    backups: Backups, kind: str, options: list[str]
) -> None:
    config = backups.write_config(topics=ORIGINAL, backup=SMALL_RANGES)
    for _ in range(2):
        run_in_process(backups, config, InThisProcess)
    manifests = sorted((backups.folder / "storage" / BACKUP_ID / "manifests").iterdir())
    path = {"segment": backups.object_paths()[0], "newest manifest": manifests[1], "older manifest": manifests[0]}[kind]
    _flip_a_bit(path)

    done = backups.verify(*options)

    assert done.status == 1, done
    (line,) = [line for line in done.output.splitlines() if line.startswith("damaged: ")]
    assert path.name in line
    assert ", 1 damaged, " in done.output.splitlines()[-1]


def test_damaged_newest_manifest_stops_the_next_run_and_nothing_is_written(backups: Backups) -> None:
    config = backups.write_config(topics=ORIGINAL, backup=SMALL_RANGES | {"mode": "incremental"})
    for _ in range(2):
        run_in_process(backups, config, InThisProcess)
    newest = backups.folder / "storage" / BACKUP_ID / "manifests" / "000002.json"
    _flip_a_bit(newest)
    before = backups.object_paths()

    done = run_quorate("backup", "--config", str(config))

    assert done.status == 1
    assert "000002.json is damaged: it does not match its SHA-256" in done.errors
    assert "Traceback" not in done.errors
    assert (backups.catalog().numbers(), backups.object_paths()) == ([1, 2], before)


@pytest.mark.parametrize("period", [1, 2, 3, 5, 8])
def test_storage_that_fails_at_every_nth_call_never_gets_a_manifest_with_a_missing_object(
    backups: Backups, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that fail are run again, as Spark does; a run that fails commits nothing."""
    calls = _Calls(period)
    monkeypatch.setattr(copy_task, "open_storage", lambda location: _Unreliable(open_storage(location), calls))
    config = backups.write_config(topics=ORIGINAL, backup=SMALL_RANGES)
    try:
        run_in_process(backups, config, lambda: InThisProcess(attempts=4))
    except QuorateError:
        assert backups.catalog().numbers() == []
    else:
        assert sum(entry.record_count for entry in backups.manifest().segments()) == 3000
        assert _damages(backups) == []
    assert calls.failed
    assert ManifestCatalog(open_storage(_location(backups)), BACKUP_ID).numbers() in ([], [1])


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _damages(backups: Backups) -> list[str]:
    """The names of the objects that the quick check complains about."""
    inventory = take_inventory(backups.catalog())
    assert inventory is not None
    report = verify_quickly(open_storage(_location(backups)), inventory, QuietWatcher())
    return [damage.name for damage in report.damages]


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
