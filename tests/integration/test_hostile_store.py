"""A store that somebody else has written: no command leaves it, and each says in one sentence what is wrong."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quorate.backup.manifest import Mode
from quorate.backup.manifest_seal import seal
from quorate.backup.object_names import manifest_name
from quorate.backup.storage import open_storage
from quorate.backup.storage_url import StorageLocation
from quorate.cli import app
from quorate.kernel.errors import QuorateError
from tests.backup_commands import Finished
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, run_backup

RUNS = 3


def quorate(*arguments: str) -> Finished:
    result = CliRunner().invoke(app, list(arguments))
    error = result.exception
    if isinstance(error, QuorateError):
        return Finished(1, result.stdout, f"quorate: {error}")
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return Finished(result.exit_code, result.stdout, result.stderr)


class HostileStore:
    """A backup of some snapshots in a folder that has neighbours, whose manifests are then forged."""

    def __init__(self, folder: Path) -> None:
        self.neighbours = folder
        (folder / "victim").write_bytes(b"precious")
        (folder / "other").mkdir()
        (folder / "other" / "victim.qseg").write_bytes(b"precious, too")
        self.folder = folder / "storage"
        self.root = f"file://{self.folder}"
        log = PartitionLog()
        storage = open_storage(StorageLocation(self.root).below(BACKUP_ID))
        for number in range(RUNS):
            log.append(5)
            run_backup(storage, log, f"run{number}", mode=Mode.SNAPSHOT)
        self.before = self.outside()

    def outside(self) -> dict[str, str]:
        """Everything around the store, by its content."""
        return {
            str(path.relative_to(self.neighbours)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.neighbours.rglob("*"))
            if path.is_file() and not path.is_relative_to(self.folder)
        }

    def forge(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a manifest and seal it again, as anybody can."""
        path = self.folder / BACKUP_ID / manifest_name(number)
        document = json.loads(path.read_bytes())
        del document["sha256"]
        change(document)
        path.write_bytes(seal(json.dumps(document).encode()))

    def command(self, name: str, *options: str) -> Finished:
        return quorate(name, "--storage", self.root, "--backup-id", BACKUP_ID, *options)


@pytest.fixture
def store(tmp_path: Path) -> HostileStore:
    return HostileStore(tmp_path)


def assert_one_sentence(done: Finished) -> None:
    told = [line for line in done.errors.splitlines() if line.startswith("quorate: ")]
    assert done.status == 1, done
    assert len(told) == 1, done
    assert "Traceback" not in done.errors


COMMANDS = [
    ("prune", "--keep-last", "1"),
    ("prune", "--all"),
    ("hold",),
    ("verify",),
    ("list-backups",),
]


@pytest.mark.parametrize("leads_to", ["../../victim", "../../other/victim.qseg", "{outside}/victim"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_touches_a_file_outside_that_a_manifest_names(
    store: HostileStore, leads_to: str, command: tuple[str, ...]
) -> None:
    """Seen once: a prune deleted it, and restore, verify and export read it."""

    def change(manifest: dict[str, Any]) -> None:
        for partition in manifest["topics"][0]["partitions"]:
            partition["segments"][0]["name"] = leads_to.format(outside=store.neighbours)

    for number in range(1, RUNS + 1):
        store.forge(number, change)

    done = store.command(*command)

    assert store.outside() == store.before
    if command[0] == "verify":
        assert done.status == 1
        assert done.output.count("damaged: ") == RUNS, done
    elif command[0] != "hold":
        assert_one_sentence(done)
        assert "which is not the name of its segment" in done.errors


def test_a_prune_deletes_nothing_outside_that_its_own_decision_names(store: HostileStore) -> None:
    decision = store.folder / f"{BACKUP_ID}~holds" / "000001" / "0001.json"
    decision.parent.mkdir(parents=True)
    decision.write_bytes(json.dumps({"type": "prune", "objects": {"../../victim": 8}}).encode())
    os.replace(_mark(store), store.folder / BACKUP_ID / manifest_name(1))

    store.command("prune", "--keep-last", "2")

    assert store.outside() == store.before


def _mark(store: HostileStore) -> Path:
    mark = store.folder / "mark"
    mark.write_bytes(b'{"pruned": true}\n')
    return mark


def test_a_backups_folder_that_is_a_link_out_of_the_store_is_refused_by_every_command(
    store: HostileStore, tmp_path: Path
) -> None:
    (store.folder / BACKUP_ID).rename(tmp_path / "elsewhere")
    (store.folder / BACKUP_ID).symlink_to(tmp_path / "elsewhere")
    before = store.outside()

    for command in COMMANDS:
        done = store.command(*command)
        assert_one_sentence(done)
        assert "symbolic link" in done.errors
    assert store.outside() == before
