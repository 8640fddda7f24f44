"""Which brokers are alive, as the active controller sees it. Pure: time comes in as an argument."""

from collections.abc import Iterable

from quorate.kernel.ids import NodeId


class BrokerSessions:
    """A broker is alive while its last heartbeat is younger than the session time-out."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._last_heard_ms: dict[NodeId, int] = {}

    def begin(self, brokers: Iterable[NodeId], now_ms: int) -> None:
        """A new controller gives everybody a whole session to find it."""
        self._last_heard_ms = dict.fromkeys(brokers, now_ms)

    def heard(self, broker: NodeId, now_ms: int) -> None:
        self._last_heard_ms[broker] = now_ms

    def ended(self, broker: NodeId) -> None:
        self._last_heard_ms.pop(broker, None)

    def expired(self, now_ms: int) -> list[NodeId]:
        return [node for node, heard in self._last_heard_ms.items() if now_ms - heard >= self._session_timeout_ms]

    @property
    def next_deadline_ms(self) -> int | None:
        if not self._last_heard_ms:
            return None
        return min(self._last_heard_ms.values()) + self._session_timeout_ms
