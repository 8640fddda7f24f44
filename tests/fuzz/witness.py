"""Somebody who uses the cluster meanwhile: writes with acks=all and reads, at a steady rate, and notes every offset."""

from typing import Any

from tests.chaos.load import TOPIC, SharedHistory, Tail, Writer, read_everything
from tests.fuzz.world import WITNESS_TOPIC

assert TOPIC == WITNESS_TOPIC
_PAUSE_S = 0.02


class _SteadyWriter(Writer):
    def step(self) -> None:
        super().step()
        self.ends.wait(_PAUSE_S)


class Witness:
    def __init__(self, bootstrap: str, **settings: Any) -> None:
        """``settings`` are of all its clients, such as how they log in."""
        self.shared = SharedHistory()
        self._settings = settings
        self._workers = [
            _SteadyWriter(self.shared, bootstrap, "witness", is_idempotent=True, **settings),
            Tail(self.shared, bootstrap, "tail", **settings),
        ]

    @property
    def broken(self) -> Exception | None:
        return self.shared.broken

    @property
    def acknowledged(self) -> int:
        return self.shared.history.acknowledged_count

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def end(self) -> None:
        for worker in self._workers:
            worker.end()

    def check_everything(self, bootstrap: str) -> None:
        """Read all anew: what was acknowledged is there, as it was written. Raises where not."""
        for partition, log in read_everything(bootstrap, **self._settings).items():
            self.shared.history.check_log(partition, log, "the topic")
