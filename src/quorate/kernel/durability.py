"""When records count as committed: a setting that every node of a cluster has for itself."""

from enum import StrEnum


class Durability(StrEnum):
    #: Records count as committed once they are on the disk (group-commit fdatasync).
    FSYNC = "fsync"
    #: Records count as committed once the operating system has them, as with Apache Kafka's defaults.
    OS = "os"
