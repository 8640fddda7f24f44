"""``quorate up --secure`` as a child process, and how clients connect to it by the files that it writes."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quorate.security.properties import login_module_value
from tests.peers.child_process import ChildProcess, free_ports_in_a_row
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line


class SecuredUp:
    def __init__(self, folder: Path, *, nodes: int = 3, arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = free_ports_in_a_row(4)
        self.output_path = folder.with_suffix(".out")
        self.process = self.start("--secure", "--nodes", str(nodes), "--port", str(self.port), *arguments)

    def start(self, *arguments: str) -> ChildProcess:
        self.process = ChildProcess([str(QUORATE), "up", "--data", str(self.folder), *arguments], self.output_path)
        self.process.wait_for_output(ready_line, "the cluster to be ready", START_TIMEOUT_S)
        return self.process

    def stop(self) -> None:
        self.process.stop()

    def command(self, *arguments: str, properties: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One of our own, as its first user unless ``properties`` say who."""
        command = [str(QUORATE), *arguments, "--command-config", str(properties or self.properties)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    @property
    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return found

    @property
    def bootstrap(self) -> str:
        return str(self.described["bootstrap_servers"])

    @property
    def properties(self) -> Path:
        return Path(self.described["client_properties"])

    @property
    def ca_file(self) -> Path:
        return Path(self.described["ca_file"])

    @property
    def password(self) -> str:
        return (self.folder / "admin.password").read_text().strip()

    def librdkafka(self, username: str = "admin", password: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.described["security_protocol"],
            "sasl.mechanism": self.described["sasl_mechanism"],
            "sasl.username": username,
            "sasl.password": self.password if password is None else password,
            "ssl.ca.location": str(self.ca_file),
            "log_level": 0,
        }

    def kafka_python(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": self.described["security_protocol"],
            "sasl_mechanism": self.described["sasl_mechanism"],
            "sasl_plain_username": "admin",
            "sasl_plain_password": self.password,
            "ssl_cafile": str(self.ca_file),
        }

    def properties_of(self, path: Path, username: str, password: str) -> Path:
        """As ``client.properties`` has it, for another user."""
        lines = self.properties.read_text().splitlines()
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        name, secret = (login_module_value(each, is_bare=True) for each in (username, password))
        login = f"sasl.jaas.config={module} required username={name} password={secret};"
        path.write_text("\n".join(login if line.startswith("sasl.jaas.config=") else line for line in lines) + "\n")
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
