"""What each simulated node takes of the real processor, and sends."""

import time
from asyncio.events import Handle, TimerHandle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from unittest.mock import patch

from tests.simulation.world import host as host_module
from tests.simulation.world.loop import SimulatedLoop
from tests.simulation.world.world import World


class Meters:
    def __init__(self, world: World) -> None:
        self._world = world
        #: By the name of the host.
        self.processor_s: Counter[str] = Counter()

    def sent_bytes(self) -> Counter[str]:
        """By the name of the host; what a host says to itself does not count."""
        names = {host.address: name for name, host in self._world.hosts.items()}
        sent: Counter[str] = Counter()
        for source, target, link in self._world.network.links():
            if source != target and source in names:
                sent[names[source]] += link.sent_bytes
        return sent


@contextmanager
def metered(meters: Meters) -> Iterator[None]:
    """Every life of a host that begins now is metered. Work of its threads counts, too."""

    class MeteredLoop(SimulatedLoop):
        def call_soon(  # type: ignore[override]
            self, callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> Handle:
            return super().call_soon(self._run, callback, args, context=context)

        def call_later(  # type: ignore[override]
            self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> TimerHandle:
            return super().call_later(delay, self._run, callback, args, context=context)

        def call_at(  # type: ignore[override]
            self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> TimerHandle:
            return super().call_at(when, self._run, callback, args, context=context)

        def _run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
            started = time.thread_time()
            try:
                callback(*args)
            finally:
                meters.processor_s[self.owner.name] += time.thread_time() - started  # type: ignore[assignment]

    with patch.object(host_module, "SimulatedLoop", MeteredLoop):
        yield
