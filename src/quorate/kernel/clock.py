"""The clock port: what the rest of the code may know about wall time.

Timers belong to the event loop. This port is only for times that are stored or compared with stored ones: record
timestamps, retention, offset expiry.
"""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...
