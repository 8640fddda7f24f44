"""Commands that share a warm Spark, and all that they leave behind: every process has inherited one variable."""

import json
import os
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.backup_commands import BACKUP_ID, QUORATE, Backups, Finished, run_quorate
from tests.eventually import eventually
from tests.process_tree import command_of


class WarmCommands:
    """On one storage, with a temporary folder of their own, where warm Sparks live."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.backups = Backups(folder, bootstrap_servers)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._mark = f"QUORATE_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.environment = os.environ | {name: value, "TMPDIR": str(self.temporary)}

    @property
    def place(self) -> Path:
        """The folder of the only one."""
        (found,) = self.places()
        return found

    def places(self) -> list[Path]:
        return list(self.temporary.glob("quorate-*/warm-*"))

    def backup(self, *options: str, keep_warm: str = "5m", **sections: Any) -> Finished:
        config = self.backups.write_config(backup={"mode": "incremental"} | sections)
        return self.run("backup", "--config", str(config), "--keep-warm", keep_warm, *options)

    def start_backup(self, *options: str, keep_warm: str = "5m", **sections: Any) -> "subprocess.Popen[str]":
        config = self.backups.write_config(backup={"mode": "incremental"} | sections)
        return subprocess.Popen(
            [str(QUORATE), "backup", "--config", str(config), "--keep-warm", keep_warm, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )

    def of_backup(self, command: str, *options: str, keep_warm: str = "5m") -> Finished:
        where = ["--storage", self.backups.url, "--backup-id", BACKUP_ID]
        return self.run(command, *where, "--keep-warm", keep_warm, *options)

    def run(self, *arguments: str) -> Finished:
        return run_quorate(*arguments, environment=self.environment)

    def status(self) -> list[dict[str, Any]]:
        shown = self.run("spark", "status", "--format", "json")
        assert shown.status == 0, shown
        rows: list[dict[str, Any]] = json.loads(shown.output)
        return rows

    def the_one(self) -> dict[str, Any]:
        (row,) = self.status()
        return row

    def java(self) -> int:
        noted = json.loads((self.place / "processes").read_text())
        return int(noted["java"]["pid"])

    def alive(self) -> list[str]:
        """What runs, by its command line; not what records classes for the next start, which ends by itself."""
        commands: dict[int, str] = {}
        parents: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
                if self._mark.encode() in (folder / "environ").read_bytes() and state != "Z":
                    commands[int(folder.name)] = command_of(int(folder.name))
                    parents[int(folder.name)] = int(parent)
        return [command for pid, command in commands.items() if not _records_classes(pid, commands, parents)]

    def wait_until_nothing_is_left(self) -> None:
        eventually(lambda: not self.alive(), "all that the commands have started to end", within_s=60)

    def end(self) -> None:
        """Whatever a test has done: nothing of it stays."""
        self.run("spark", "stop")
        self.wait_until_nothing_is_left()


def _records_classes(pid: int, commands: Mapping[int, str], parents: Mapping[int, int]) -> bool:
    while pid in commands:
        if "session.class_archive" in commands[pid]:
            return True
        pid = parents[pid]
    return False


def wait_for_line(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}: {seen}")
