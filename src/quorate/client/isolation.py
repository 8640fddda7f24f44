"""What a reader may see of open and aborted transactions."""

from enum import IntEnum


class IsolationLevel(IntEnum):
    #: Everything below the high watermark.
    READ_UNCOMMITTED = 0
    #: Everything below the last stable offset, with the list of aborted transactions.
    READ_COMMITTED = 1
