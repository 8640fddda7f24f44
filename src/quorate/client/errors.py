"""What can go wrong between this client and a cluster, each in one sentence that names the address or partition.

``Disconnected`` and the codes that the kernel's table calls retriable are tried again until a deadline; everything else
is told to the caller at once. ``error_code`` and ``check`` turn the numbers in answers into these.
"""

from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, TopicId, TopicPartition

_DENIALS = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


class Disconnected(QuorateError):
    """There is no working connection to a broker, or it has just ended. Another attempt may help."""

    def __init__(self, address: Address, message: str) -> None:
        super().__init__(message)
        self.address = address


class BrokerUnreachable(Disconnected):
    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(address, f"cannot connect to {address}: {reason}")


class ConnectionLost(Disconnected):
    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(address, f"lost the connection to {address}: {reason}")


class RequestTimedOut(Disconnected):
    def __init__(self, address: Address, api: str, timeout_ms: int) -> None:
        super().__init__(address, f"{address} did not answer {api} within {timeout_ms} ms")


class AuthenticationFailed(KafkaError):
    """The broker refuses who we are, or we refuse it. Trying again with the same settings is no use."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, f"authentication with {address} failed: {reason}")
        self.address = address


class TokenRefused(QuorateError):
    """There is no access token to be had with these settings, and trying again is no use."""


class TokenUnavailable(QuorateError):
    """Whoever gives access tokens does not answer. Another attempt may help."""


class UnsupportedApi(KafkaError):
    """No version of an API that both sides speak."""

    def __init__(self, address: Address, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, f"{address} {message}")
        self.address = address


class NoBrokerAnswered(QuorateError):
    """Every known address was tried."""

    def __init__(self, what: str, causes: dict[Address, Exception]) -> None:
        tried = "; ".join(str(cause) for cause in causes.values()) or "no address is known"
        super().__init__(f"no broker answered {what}: {tried}")
        self.causes = causes


class PartitionUnavailable(QuorateError):
    """The one error of an operation on a partition that did not succeed before its deadline."""

    def __init__(
        self, partition: TopicPartition, leader_id: NodeId | None, address: Address | None, cause: str, waited_ms: int
    ) -> None:
        leader = "no leader was found" if leader_id is None else f"leader {leader_id} at {address} was tried last"
        super().__init__(f"partition {partition} is unavailable after {waited_ms} ms; {leader}: {cause}")
        self.partition = partition
        self.leader_id = leader_id
        self.address = address
        self.cause = cause


class OffsetOutOfRange(KafkaError):
    """The log does not hold the offset: it starts later (records were deleted) or ends earlier."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, log_start_offset: Offset, log_end_offset: Offset
    ) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {partition} has no offset {offset}: it holds {log_start_offset} to {log_end_offset}",
        )
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    @property
    def is_below_log_start(self) -> bool:
        return self.offset < self.log_start_offset


class LogTruncated(QuorateError):
    """What was read before ``offset`` is no longer what the log holds: it was cut back and written anew (KIP-320)."""

    def __init__(
        self,
        partition: TopicPartition,
        offset: Offset,
        last_fetched_epoch: LeaderEpoch,
        diverging_epoch: LeaderEpoch,
        diverging_end_offset: Offset,
    ) -> None:
        super().__init__(
            f"partition {partition} was truncated: up to offset {offset} was read in leader epoch "
            f"{last_fetched_epoch}, but the log agrees only up to {diverging_end_offset} (epoch {diverging_epoch})"
        )
        self.partition = partition
        self.offset = offset
        self.diverging_epoch = diverging_epoch
        self.diverging_end_offset = diverging_end_offset


class LogEndsEarly(QuorateError):
    """Records that were to be read are not readable: the high watermark (or last stable offset) stays below them."""

    def __init__(
        self, partition: TopicPartition, next_offset: Offset, end_offset: Offset, readable_end: Offset
    ) -> None:
        super().__init__(
            f"partition {partition} is readable up to offset {readable_end} only; "
            f"offsets {next_offset} to {end_offset} were asked for"
        )
        self.partition = partition
        self.next_offset = next_offset
        self.high_watermark = readable_end


class TopicReplaced(QuorateError):
    """The topic was deleted and another one with the same name exists now."""

    def __init__(self, partition: TopicPartition, expected_id: TopicId, found_id: TopicId) -> None:
        super().__init__(f"topic {partition.topic} is not the one expected: its id is {found_id}, not {expected_id}")
        self.partition = partition
        self.expected_id = expected_id
        self.found_id = found_id


def error_code(number: int) -> ErrorCode:
    """A code that is newer than this client counts as unknown, rather than as a broken answer."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, what: str, message: str | None = None) -> None:
    """Raise unless the code says that it went well. ``what`` completes "cannot …"."""
    code = error_code(number)
    if code is ErrorCode.NONE:
        return
    if code in _DENIALS:
        # Apache Kafka's own words for some of these are a page of its insides.
        message = f"the cluster does not allow it to this user ({code.name})"
    raise KafkaError(code, f"cannot {what}: {message or code.name}")
