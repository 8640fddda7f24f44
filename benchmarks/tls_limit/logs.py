"""One file for each partition, to which batches are appended; and when what was written is durable."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path


class Log:
    """With an executor, its file is synced: once for all writes that wait, while others are taken."""

    def __init__(self, path: Path, executor: Executor | None) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._executor = executor
        self._next_offset = 0
        self._waiting: list[Callable[[], None]] = []
        self._is_syncing = False

    def append(self, batch: memoryview, records: int) -> int:
        """The base offset."""
        if os.write(self._file, batch) != len(batch):
            raise OSError(f"{self.path} did not take a whole batch")
        base_offset = self._next_offset
        self._next_offset += records
        return base_offset

    def when_durable(self, then: Callable[[], None]) -> None:
        """``then`` is called once what was appended until now is as durable as asked for."""
        if self._executor is None:
            then()
            return
        self._waiting.append(then)
        if not self._is_syncing:
            self._sync(self._executor)

    def close(self) -> None:
        os.close(self._file)

    def _sync(self, executor: Executor) -> None:
        self._is_syncing = True
        waiting, self._waiting = self._waiting, []
        synced = asyncio.get_running_loop().run_in_executor(executor, os.fdatasync, self._file)

        def go_on(done: "asyncio.Future[None]") -> None:
            done.result()
            self._is_syncing = False
            for then in waiting:
                then()
            if self._waiting:
                self._sync(executor)

        synced.add_done_callback(go_on)


class Logs:
    def __init__(self, folder: Path, executor: Executor | None) -> None:
        self._folder = folder
        self._executor = executor
        self._logs: dict[tuple[str, int], Log] = {}

    def log(self, topic: str, partition: int) -> Log:
        log = self._logs.get((topic, partition))
        if log is None:
            log = self._logs[topic, partition] = Log(self._folder / f"{topic}-{partition}.log", self._executor)
        return log

    def remove(self, topic: str) -> None:
        for key in [key for key in self._logs if key[0] == topic]:
            log = self._logs.pop(key)
            log.close()
            log.path.unlink()
