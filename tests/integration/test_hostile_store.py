"""A store that somebody else has written: no command leaves it, and each says in one sentence what is wrong."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quorate.backup.manifests.manifest import Mode
from quorate.backup.objects.names import manifest_name
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.objects.stored_documents import seal
from quorate.cli.commands import app
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

    def forge(self, number: int, change: Callable[[dict[str, Any]], object]) -> None:
        """Change a manifest and seal it again, as anybody can."""
        path = self.folder / BACKUP_ID / manifest_name(number)
        document = json.loads(path.read_bytes())
        del document["sha256"]
        change(document)
        text = json.dumps(document).encode()
        text = text.replace(b'"@deep"', b"[" * 200_000 + b"]" * 200_000).replace(b'"@bytes"', b'"\xff\xfe"')
        path.write_bytes(seal(text))

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


def _topic(manifest: dict[str, Any]) -> dict[str, Any]:
    topic: dict[str, Any] = manifest["topics"][0]
    return topic


def _partition(manifest: dict[str, Any]) -> dict[str, Any]:
    partition: dict[str, Any] = _topic(manifest)["partitions"][0]
    return partition


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "captured_ms of 10^18": lambda manifest: manifest.update(captured_ms=10**18),
    "captured_ms before 1970": lambda manifest: manifest.update(captured_ms=-1),
    "created_ms of 300 digits": lambda manifest: manifest.update(created_ms=10**300),
    "partition_count of 10^18": lambda manifest: _topic(manifest).update(partition_count=10**18),
    "partition_count below 0": lambda manifest: _topic(manifest).update(partition_count=-1),
    "many topics with many partitions": lambda manifest: manifest["topics"].extend(
        _topic(manifest) | {"name": f"t{number}", "partition_count": 100_000, "partitions": []} for number in range(3)
    ),
    "partition of 2^31": lambda manifest: _partition(manifest).update(partition=2**31),
    "offset of 2^63": lambda manifest: _partition(manifest).update(captured_end_offset=2**63),
    "generation 0": lambda manifest: _topic(manifest).update(generation=0),
    "size of 2^60": lambda manifest: _partition(manifest)["segments"][0].update(size_bytes=2**60),
    "record_count of 10^15": lambda manifest: _partition(manifest)["segments"][0].update(record_count=10**15),
    "last offset before the first": lambda manifest: _partition(manifest)["segments"][0].update(last_offset=0),
    "compaction of itself": lambda manifest: manifest.update(compacted_from=manifest["number"]),
    "a digest that moves the cursor": lambda manifest: _partition(manifest)["segments"][0].update(sha256="\x1b[2J"),
    "unknown codec": lambda manifest: manifest["settings"].update(compression="x\u001b[2Jy"),
    "topic that leads out": lambda manifest: _topic(manifest).update(name="../../x"),
    "topic of two lines": lambda manifest: _topic(manifest).update(name="a\nquorate: all is well"),
    "nested too deeply": lambda manifest: manifest.update(x="@deep"),
    "bytes that are no text": lambda manifest: manifest.update(backup_id="@bytes"),
    "a float": lambda manifest: manifest.update(captured_ms=1.5),
    "another backup's": lambda manifest: manifest.update(backup_id="\u001b[2J\nother"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_number_or_text_that_no_run_wrote_is_one_sentence(
    store: HostileStore, forgery: str, command: tuple[str, ...]
) -> None:
    """Seen once: partition_count of 10^18 made a restore spin, captured_ms of 10^18 was a traceback."""
    store.forge(RUNS, FORGERIES[forgery])

    done = store.command(*command)

    assert "Traceback" not in done.errors
    assert all(line.isprintable() for line in (done.output + done.errors).splitlines())
    if command[0] == "verify":
        assert done.output.count("damaged: ") == 1, done
    elif command[0] != "hold":
        assert_one_sentence(done)


def test_a_record_after_the_year_9999_is_listed(tmp_path: Path) -> None:
    """Producers set the times of their records, to whatever they like. Seen once as a traceback of list-backups."""
    storage, log = open_storage(StorageLocation(f"file://{tmp_path}").below(BACKUP_ID)), PartitionLog()
    for timestamps in ([10**18, 5], [-(2**62), 2**63 - 1]):
        log.append(2, timestamps=timestamps)
    run_backup(storage, log, "run")

    for options in ([], ["--backup-id", BACKUP_ID], ["--backup-id", BACKUP_ID, "--format", "json"]):
        done = quorate("list-backups", "--storage", f"file://{tmp_path}", *options)
        assert done.status == 0, done
    assert f"{2**63 - 1} ms" in done.output


@pytest.mark.timeout(60)
def test_manifests_are_not_counted_through_where_one_has_a_forged_number(store: HostileStore) -> None:
    manifests = store.folder / BACKUP_ID / "manifests"
    store.forge(RUNS, lambda manifest: manifest.update(number=10**12 - 1))
    (manifests / "000003.json").rename(manifests / f"{10**12 - 1}.json")
    (manifests / f"{10**40}.json").write_bytes(b"{}")  # No number that a manifest can have.
    (manifests / "0000001.json").write_bytes(b"{}")

    done = store.command("verify")

    assert done.status == 1
    assert f"damaged: backup {BACKUP_ID} has no manifests 3 to {10**12 - 2}\n" in done.output
    assert "1 damaged" in done.output


def _decide(store: HostileStore, content: bytes) -> None:
    decision = store.folder / f"{BACKUP_ID}~holds" / "000001" / "0001.json"
    decision.parent.mkdir(parents=True)
    decision.write_bytes(content)


@pytest.mark.parametrize("name", ["../../victim", "../other/victim.qseg", "manifests/000003.json"])
def test_a_prune_deletes_nothing_that_a_forged_decision_names(store: HostileStore, name: str) -> None:
    _decide(store, seal(json.dumps({"type": "prune", "objects": {name: 8}}).encode()))
    os.replace(_mark(store), store.folder / BACKUP_ID / manifest_name(1))

    done = store.command("prune", "--keep-last", "2")

    assert done.status == 0, done
    assert store.outside() == store.before
    assert (store.folder / BACKUP_ID / manifest_name(3)).exists()


def test_a_damaged_hold_is_named_by_verify_with_what_to_do_and_that_mends_it(store: HostileStore) -> None:
    assert store.command("hold", "--manifest", "1").status == 0
    path = store.folder / f"{BACKUP_ID}~holds" / "000001" / "0001.json"
    path.write_bytes(path.read_bytes().replace(b"hold", b"holD"))

    verified, listed = store.command("verify"), store.command("list-backups")
    pruned = store.command("prune", "--keep-last", "1")

    assert verified.status == 1
    for done in (verified, listed):
        assert "000001/0001.json is damaged: it does not match its SHA-256; manifest 1 stays" in done.output
    assert (listed.status, pruned.status) == (0, 0)
    assert "manifest 1 stays: kept because what was decided about it is damaged" in pruned.output
    assert store.command("hold", "--manifest", "1", "--release").status == 0
    assert store.command("verify").status == 0
    assert "1 manifest and" in store.command("prune", "--keep-last", "1").output


def test_a_damaged_plan_of_a_restore_is_named_by_verify_and_a_prune_says_what_to_do(store: HostileStore) -> None:
    plan = store.folder / f"{BACKUP_ID}~restores" / "ab-1" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_bytes(seal(b'{"format_version":2}'))

    verified, pruned = store.command("verify"), store.command("prune", "--keep-last", "1")

    assert verified.status == 1
    assert "ab-1/plan.json is damaged: " in verified.output
    assert_one_sentence(pruned)
    assert "--ignore-restore ab-1" in pruned.errors
    assert store.command("prune", "--keep-last", "1", "--ignore-restore", "ab-1").status == 0


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
