"""A worker of Kafka Connect in distributed mode: its process, and its REST interface."""

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.ecosystem.programs import start_java, write_properties
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_port

# Generous: it only keeps a broken broker from hanging the tests.
DEADLINE_S = 150
_REQUEST_TIMEOUT_S = 30
#: Before the worker is asked again: it has better things to do.
_PAUSE_S = 0.2
#: Not known yet, rebalancing, or not ready.
_ASK_AGAIN = {404, 409, 500, 503}
_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"


class ConnectWorker:
    def __init__(self, folder: Path, bootstrap: str, group: str, security: Mapping[str, str] | None = None) -> None:
        """``security`` is how the worker and its connectors log in."""
        self._folder = folder
        self._url = f"http://127.0.0.1:{free_port()}"
        self._properties = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": _CONVERTER,
            "value.converter": _CONVERTER,
            "listeners": self._url,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "300",
            **{f"{of}session.timeout.ms": "6000" for of in ("", "consumer.")},
            **{f"{of}heartbeat.interval.ms": "1000" for of in ("", "consumer.")},
            "rebalance.timeout.ms": "10000",
            "scheduled.rebalance.max.delay.ms": "0",
            **{f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "3" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "3",
            "status.storage.partitions": "3",
            **{
                f"{of}{key}": value
                for of in ("", "producer.", "consumer.", "admin.")
                for key, value in (security or {}).items()
            },
        }
        self._process: ChildProcess | None = None

    def start(self) -> None:
        path = write_properties(self._folder / "worker.properties", self._properties)
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._process = start_java(main, path, log=self._folder / "worker.log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def output(self) -> str:
        return "" if self._process is None else self._process.output()

    def create(self, name: str, **configs: str) -> None:
        body = {"name": name, "config": {key.replace("_", "."): value for key, value in configs.items()}}
        eventually(lambda: self._asks("POST", "/connectors", body), f"connector {name} to be taken", DEADLINE_S)

    def wait_until_running(self, *names: str) -> None:
        eventually(lambda: all(map(self._runs, names)), f"{' and '.join(names)} to run", DEADLINE_S)

    def failure(self, name: str) -> str:
        """Why the connector's one task has failed; empty while it has not."""
        status = self._asks("GET", f"/connectors/{name}/status")
        return str(status["tasks"][0].get("trace", "")) if status and status["tasks"] else ""

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """What the connector has committed: positions in files for a source, offsets of partitions for a sink."""
        answer = self._asks("GET", f"/connectors/{name}/offsets")
        return [each["offset"] for each in answer["offsets"]] if answer else []

    def _runs(self, name: str) -> bool:
        status = self._asks("GET", f"/connectors/{name}/status")
        return bool(status and status["tasks"]) and all(task["state"] == "RUNNING" for task in status["tasks"])

    def _asks(self, method: str, path: str, body: object = None) -> Any:
        """The worker's answer; None while it has none to give: it may be starting, or rebalancing."""
        assert self._process is not None
        assert self._process.running, self._process.output()[-6000:]
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code not in _ASK_AGAIN:
                raise AssertionError(error.read().decode()) from error
        except (URLError, HTTPException, OSError):
            pass
        time.sleep(_PAUSE_S)
        return None
