"""``quorate prune`` and ``quorate hold`` with their options, and killed, over a folder of real files."""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quorate.backup.errors import ObjectNotFound
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, Mode
from quorate.backup.objects.local_storage import PARTIAL_SUFFIX
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, StoredObject
from quorate.backup.retention.orphans import find_orphans
from quorate.backup.segments.verification import verify_hash
from quorate.cli.commands import app
from quorate.kernel.errors import QuorateError
from tests.backup_commands import QUORATE, Finished
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, read_back, run_backup

pytestmark = pytest.mark.timeout(1800 if os.environ.get("QUORATE_HEAVY") else 300)

RUNS = 12
KILLS = 60 if os.environ.get("QUORATE_HEAVY") else 3


def quorate(*arguments: str) -> Finished:
    """The command in this process: starting one takes longer than all that it does."""
    result = CliRunner().invoke(app, list(arguments))
    error = result.exception
    if isinstance(error, QuorateError):
        return Finished(1, result.stdout, f"quorate: {error}")
    assert error is None or isinstance(error, SystemExit), error
    return Finished(result.exit_code, result.stdout, result.stderr)


class Stored:
    """A backup of some snapshots and increments in a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = f"file://{folder}"

    @property
    def storage(self) -> ObjectStorage:
        return open_storage(StorageLocation(self.root).below(BACKUP_ID))

    @property
    def catalog(self) -> ManifestCatalog:
        return ManifestCatalog(self.storage, BACKUP_ID)

    def fill(self, log: PartitionLog, runs: int = RUNS) -> None:
        for number in range(runs):
            for _ in range(4):
                log.append(3)
            mode = Mode.SNAPSHOT if number % 3 == 0 else Mode.INCREMENTAL
            run_backup(self.storage, log, f"run{number}", mode=mode, range_bytes=200)

    def prune(self, *options: str) -> Finished:
        return quorate("prune", "--storage", self.root, "--backup-id", BACKUP_ID, *options)

    def hold(self, *options: str) -> Finished:
        return quorate("hold", "--storage", self.root, "--backup-id", BACKUP_ID, *options)

    def start_prune(self, *options: str) -> "subprocess.Popen[str]":
        command = [str(QUORATE), "prune", "--storage", self.root, "--backup-id", BACKUP_ID, *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def count(self, pattern: str) -> int:
        return sum(1 for _ in self.folder.glob(pattern))

    def newest(self) -> Manifest:
        manifest = self.catalog.latest()
        assert manifest is not None
        return manifest

    def assert_whole(self) -> None:
        storage = self.storage
        for manifest in self.catalog.history():
            for segment in manifest.segments():
                verify_hash(StoredObject(storage, segment.name), segment)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PartitionLog]:
    log = PartitionLog()
    folder = tmp_path_factory.mktemp("template")
    Stored(folder).fill(log)
    return folder, log


@pytest.fixture
def stored(template: tuple[Path, PartitionLog], tmp_path: Path) -> Stored:
    shutil.copytree(template[0], tmp_path / "storage")
    return Stored(tmp_path / "storage")


def test_killed_at_some_points_and_run_again_it_ends_whole_and_leaves_nothing_behind(
    stored: Stored, template: tuple[Path, PartitionLog], tmp_path: Path
) -> None:
    chance = random.Random(5)
    objects = stored.count("**/*.qseg")
    claims, marks, gone = "nightly~holds/*/*.json", "nightly/manifests/*.json", "nightly/topics/**/*.qseg"
    points: list[Callable[[Stored], bool]] = [
        lambda each: each.count(claims) >= chance.randrange(1, RUNS - 1),
        lambda each: any(path.stat().st_size < 100 for path in each.folder.glob(marks)),
        lambda each: objects - each.count(gone) >= chance.randrange(1, 20),
    ]
    for kill in range(KILLS):
        folder = tmp_path / f"killed{kill}"
        shutil.copytree(stored.folder, folder)
        killed = Stored(folder)
        process = killed.start_prune("--keep-last", "1")
        while not points[kill % len(points)](killed) and process.poll() is None:
            pass  # Without a pause: what is waited for lasts milliseconds.
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed.assert_whole()

        done = killed.prune("--keep-last", "1")

        assert done.status == 0, done
        killed.assert_whole()
        assert killed.catalog.numbers() == [RUNS]
        orphans = find_orphans(killed.storage.objects(), killed.catalog.history())
        assert [each.name for each in orphans if not each.name.endswith(PARTIAL_SUFFIX)] == []
        assert killed.count("nightly~holds/*/*") == 0
        assert read_back(killed.storage, killed.newest()) == [data for _, data in template[1].batches]


def test_dry_run_prune_and_the_report_say_the_same(stored: Stored) -> None:
    dry = stored.prune("--keep-last", "2", "--dry-run", "--format", "json")
    assert dry.status == 0, dry
    assert stored.catalog.numbers() == list(range(1, RUNS + 1))

    done = stored.prune("--keep-last", "2", "--format", "json")

    assert done.status == 0, done
    (said,), (did,) = dry.json, done.json
    assert said | {"is_dry": False} == did
    assert did["pruned"] == list(range(1, RUNS - 1))
    assert did["objects"] > 0
    stored.assert_whole()


def test_a_held_manifest_outlives_prunes_until_it_is_released(stored: Stored) -> None:
    assert stored.hold("--manifest", "2", "--reason", "case 17").status == 0
    listed = quorate("list-backups", "--storage", stored.root, "--backup-id", BACKUP_ID)
    assert "held: manifest 2 since" in listed.output
    assert "case 17" in listed.output

    done = stored.prune("--keep-last", "1")

    assert done.status == 0, done
    assert "manifest 2 stays: held" in done.output
    assert stored.catalog.numbers() == [2, RUNS]
    stored.assert_whole()
    verified = quorate("verify", "--storage", stored.root, "--backup-id", BACKUP_ID)
    assert verified.status == 0, verified
    refused = stored.prune("--all")
    _assert_one_sentence(refused, "manifest 2 of backup nightly is held: nothing was deleted")

    assert stored.hold("--manifest", "2", "--release").status == 0
    assert stored.prune("--keep-last", "1").status == 0
    assert stored.catalog.numbers() == [RUNS]
    assert find_orphans(stored.storage.objects(), stored.catalog.history()) == []


def test_the_whole_backup_is_deleted_when_it_is_asked_for(stored: Stored) -> None:
    done = stored.prune("--all")

    assert done.status == 0, done
    assert stored.count("**/*.qseg") == 0
    assert stored.catalog.latest() is None
    listed = quorate("list-backups", "--storage", stored.root, "--format", "json")
    assert listed.json == []


def test_mistakes_are_one_sentence_and_change_nothing(stored: Stored) -> None:
    before = sorted(stored.folder.rglob("*"))
    _assert_one_sentence(stored.prune(), "say what to keep")
    _assert_one_sentence(stored.prune("--keep-last", "0"), "the newest manifest always stays")
    _assert_one_sentence(quorate("prune", "--storage", stored.root, "--all"), "--backup-id")
    _assert_one_sentence(
        quorate("prune", "--storage", stored.root, "--backup-id", "nigthly", "--keep-last", "1"),
        "there is no backup nigthly",
    )
    _assert_one_sentence(stored.hold("--manifest", "99"), "has no manifest 99")
    _assert_one_sentence(stored.hold("--release"), "nothing is held")
    assert sorted(stored.folder.rglob("*")) == before


def test_a_pruned_manifest_is_not_there_for_anyone(stored: Stored) -> None:
    name = min(stored.catalog.read(1).object_names())
    stored.prune("--keep-last", "1")

    _assert_one_sentence(stored.hold("--manifest", "1"), "has no manifest 1")
    with pytest.raises(ObjectNotFound):
        stored.storage.info(name)


def _assert_one_sentence(done: Finished, text: str) -> None:
    assert done.status == 1, done
    assert text in done.errors
    assert len(done.errors.strip().splitlines()) == 1, done.errors
