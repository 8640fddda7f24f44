"""Error codes in answers, and the exceptions they stand for."""

from quorate.kernel.errors import ErrorCode, KafkaError


def error_code(number: int) -> ErrorCode:
    """A code that is newer than this client counts as unknown, rather than as a broken answer."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, what: str, message: str | None = None) -> None:
    """Raise unless the code says that it went well. ``what`` completes "cannot …"."""
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"cannot {what}: {message or code.name}")
