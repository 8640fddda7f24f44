"""What can be wrong with record batches, each with its code on the wire. Pure."""

from quorate.kernel.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):  # noqa: N818 (named for what is found, as a reader of logs would say it)
    """The bytes are not what their writer meant: too short, a wrong CRC, nonsense inside."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class UnsupportedMagic(KafkaError):  # noqa: N818 (named for what is found, as a reader of logs would say it)
    """A message set of format 0 or 1, where only record batches (magic 2) are taken; see ``records.legacy``."""

    def __init__(self, magic: int) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic} where 2 is needed")
        self.magic = magic
