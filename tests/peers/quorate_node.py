"""A Quorate node as a child process: the installed command, a real port, real files."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.child_process import ChildProcess, free_port

QUORATE = Path(sys.executable).parent / "quorate"
READY_PREFIX = "ready: "
START_TIMEOUT_S = 30

TomlValue = str | int | bool | Mapping[str, str] | Mapping[str, str | int]


class QuorateNode:
    """One node. Stop it or kill it, start it again: data directory, port and settings stay."""

    def __init__(
        self,
        folder: Path,
        *,
        node_id: int,
        settings: Mapping[str, TomlValue],
        configs: Mapping[str, TomlValue],
        host: str = "127.0.0.1",
        command_start: Sequence[str] = (),
        more_listeners: Mapping[str, int] | None = None,
    ) -> None:
        """``command_start``: what the command begins with, where the node runs on a network of its own.

        ``more_listeners`` are the ports of listeners beside the plain one, by their names.
        """
        self.node_id = node_id
        self._host = host
        self._command_start = command_start
        self.port = free_port()
        self.data_dir = folder / "data"
        self._config_path = folder / "node.toml"
        self._log_path = folder / "node.log"
        self._process: ChildProcess | None = None
        self.settings = settings
        own_settings: dict[str, TomlValue] = {
            "node_id": node_id,
            "data_dir": str(self.data_dir),
            "listen": self.bootstrap,
        }
        if more_listeners:
            ports = {"PLAINTEXT": self.port, **more_listeners}
            own_settings["listeners"] = ",".join(f"{name}://{host}:{port}" for name, port in ports.items())
        if "listeners" in {*own_settings, *configs}:
            del own_settings["listen"]
        folder.mkdir(parents=True, exist_ok=True)
        self._config_path.write_text(_toml(own_settings | dict(settings)) + "[configs]\n" + _toml(configs))

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        node_id: int = 7,
        settings: Mapping[str, TomlValue] | None = None,
        configs: Mapping[str, TomlValue] | None = None,
    ) -> Self:
        """A node that is ready to serve, its files below ``folder``. ``configs`` are Kafka's broker configs."""
        node = cls(folder, node_id=node_id, settings=settings or {}, configs=configs or {})
        node.restart()
        return node

    @property
    def bootstrap(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None, "the node was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def log_text(self) -> str:
        """All that its processes have written so far."""
        return self._log_path.read_text(errors="replace")

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def restart(self) -> None:
        """Start the process on the same data directory and port, and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process, which may need others to become ready."""
        command = [*self._command_start, str(QUORATE), "serve", "--config", str(self._config_path)]
        self._process = ChildProcess(command, self._log_path)

    def wait_until_ready(self) -> None:
        self.process.wait_for_output(ready_line, f"node {self.node_id} to be ready", START_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()

    def stop(self) -> int:
        """Shut it down in order; returns its exit status."""
        return self.process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def ready_line(output: str) -> str | None:
    return next((line for line in output.splitlines() if line.startswith(READY_PREFIX)), None)


def _toml(settings: Mapping[str, TomlValue]) -> str:
    return "".join(f'"{key}" = {_toml_value(value)}\n' for key, value in settings.items())


def _toml_value(value: TomlValue) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(f'"{key}" = {_toml_value(each)}' for key, each in value.items()) + "}"
