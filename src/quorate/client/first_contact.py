"""The first word from a cluster: waited for, and talked about where it takes longer than a moment. Does I/O.

Whoever has mistyped an address should not sit before a silent prompt until the retries are over.
"""

import threading
from collections.abc import Callable

import msgspec

from quorate.client.config import ClientConfig
from quorate.client.errors import Disconnected, NoBrokerAnswered
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError

#: Less than the two seconds after which a silent command looks like one that hangs.
_SILENCE_S = 1.2
#: One address that takes no connections must not use up the time of the others.
_CONNECT_TIMEOUT_MS = 3_000


def require_answer(config: ClientConfig, timeout_s: float, tell: Callable[[str], None]) -> None:
    """Returns when a broker has answered; raises where none has in time, at once where it refuses who we are."""
    timeout_ms = max(1, round(timeout_s * 1000))
    patient = msgspec.structs.replace(
        config,
        retry_timeout_ms=timeout_ms,
        connect_timeout_ms=min(config.connect_timeout_ms, _CONNECT_TIMEOUT_MS, timeout_ms),
        request_timeout_ms=min(config.request_timeout_ms, timeout_ms),
    )
    where = ", ".join(config.bootstrap_servers)
    silence = threading.Timer(
        min(_SILENCE_S, timeout_s / 2), tell, [f"no answer from {where} yet; trying for {timeout_s:g} s (--timeout)"]
    )
    silence.daemon = True
    silence.start()
    try:
        with KafkaClient(patient) as client:
            client.cluster.metadata([])
    except (NoBrokerAnswered, Disconnected) as error:
        raise NoAnswer(where, timeout_s, error) from None
    finally:
        silence.cancel()


class NoAnswer(QuorateError):
    """Nobody there is a broker, or none that can be reached."""

    def __init__(self, where: str, timeout_s: float, error: QuorateError) -> None:
        reason = "; ".join(str(cause) for cause in getattr(error, "causes", {}).values()) or str(error)
        super().__init__(f"no broker answered at {where} within {timeout_s:g} s: {reason}")
