"""Errors of coordinators: which of them are retriable, and what a failed append means to who waits for it."""

from quorate.kernel.errors import ErrorCode, QuorateError

#: Told one of these, a client asks again, here or at another node, whatever it has asked for.
RETRIABLE_FROM_COORDINATORS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class CorruptCoordinatorRecord(QuorateError):
    """A record of an internal topic that no schema of Kafka's explains."""


def coordinator_error(append_error: ErrorCode) -> ErrorCode:
    """What a failed append means to who waits for it: wait, or look for the coordinator again."""
    match append_error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return append_error
