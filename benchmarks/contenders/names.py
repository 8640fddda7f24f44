"""Who takes part in the benchmarks of Spark jobs, by the names under which they are reported. Pure."""

from enum import StrEnum


class ContenderName(StrEnum):
    QUORATE = "Quorate"
    # As above, with a backup that is compressed where the producers have not: its default. It stores fewer bytes than
    # the limit copies, which is other work, so it is not held against the limit.
    QUORATE_ZSTD = "Quorate, zstd"
    # The command as a user types it, with the start of Python and of Spark. Not judged.
    QUORATE_COMMAND = "Quorate, whole command"
    CONSUMER_LOOP = "consumer loop"
    # As many of them as there are cores, which share the partitions: what a careful user would write. Not judged.
    CONSUMER_LOOPS = "consumer loop on each core"
    PRODUCER_LOOP = "producer loop"
    PRODUCER_LOOPS = "producer loop on each core"
    CONNECTOR = "Spark connector"
    # The Rust program of that name at its fastest settings, as a command: where its binary is given.
    KAFKA_BACKUP = "kafka-backup"
    LIMIT = "limit"
    # What a copy can reach that hashes every byte, as a backup and a restore have to.
    HASHED_LIMIT = "limit with SHA-256"

    @property
    def is_ours(self) -> bool:
        return self in (ContenderName.QUORATE, ContenderName.QUORATE_ZSTD, ContenderName.QUORATE_COMMAND)

    @property
    def is_judged(self) -> bool:
        return self in (ContenderName.QUORATE, ContenderName.QUORATE_ZSTD)

    @property
    def copies_files(self) -> bool:
        """Whether it is given what the brokers' log files hold, and not their topics."""
        return self in (ContenderName.LIMIT, ContenderName.HASHED_LIMIT)

    @property
    def backup_compression(self) -> str:
        return "zstd" if self is ContenderName.QUORATE_ZSTD else "none"
