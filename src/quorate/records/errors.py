"""The errors of record batches, each with its code on the wire."""

from quorate.kernel.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """The bytes are not what their writer meant: too short, a wrong CRC, nonsense inside."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class ExpandsTooFar(CorruptBatch):
    """Compressed records that are larger than the limit of the caller that opens them."""


class UnsupportedMagic(KafkaError):
    """A message set of format 0 or 1, where only record batches (magic 2) are taken; see ``records.legacy``."""

    def __init__(self, magic: int) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic} where 2 is needed")
        self.magic = magic


class InvalidRecord(KafkaError):
    """The bytes arrived as they were sent, and break a rule for what may be written."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
