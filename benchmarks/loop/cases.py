"""What is measured of the event loop: attacks, changes of many partitions, goals, and their names. Pure."""

from enum import StrEnum

import msgspec

PREFIX = "loop"
#: On a quiet machine.
MAX_ANSWER_MS = 100.0
MAX_GROWTH_MIB = 64.0
#: How a node's line begins that names what held its loop.
HOLD = "event loop held "


class Case(StrEnum):
    """In the order in which they run: the first ones need a cluster that is nearly empty."""

    IDLE = "loop-idle"
    LIST_TRANSACTIONS = "loop-list-transactions-pattern"
    DESCRIBE_GROUPS = "loop-describe-groups-empty-ids"
    FIND_COORDINATOR = "loop-find-coordinator-keys"
    MANY_RECORDS_COMPACTED = "loop-many-records-compacted"
    MANY_RECORDS_RECOMPRESSED = "loop-many-records-recompressed"
    TIMES = "loop-list-offsets-times"
    BOMBS = "loop-compression-bombs"
    ANNOUNCED = "loop-announced-frames"
    CREATE_TOPICS = "loop-create-topics"
    GROUP_PATTERN = "loop-consumer-group-pattern"
    CREATE_PARTITIONS = "loop-partitions-create"
    METADATA_UNREAD = "loop-partitions-metadata-unread"
    REASSIGN_PARTITIONS = "loop-partitions-reassign"
    MOVE_LEADERS = "loop-partitions-leaders-move"
    RESTART_NODE = "loop-partitions-node-restart"
    DELETE_PARTITIONS = "loop-partitions-delete"


class LoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is sent."""

    partitions: int
    topics: int
    group_topics: int
    coordinator_keys: int
    group_ids_bytes: int
    records: int
    #: How long after a change its consequences are waited for.
    settling_s: float


FULL = LoopSettings(
    partitions=10_000,
    topics=20_000,
    group_topics=15_000,
    coordinator_keys=100_000,
    group_ids_bytes=1 << 20,
    records=2_000_000,
    settling_s=5.0,
)
QUICK = LoopSettings(
    partitions=1_000,
    topics=2_000,
    group_topics=500,
    coordinator_keys=10_000,
    group_ids_bytes=1 << 17,
    records=200_000,
    settling_s=2.0,
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a case did to the cluster while it ran and shortly after."""

    case: Case
    #: The longest that a client of any node waited for the answer to a request that costs nothing.
    worst_answer_ms: float
    median_answer_ms: float
    #: How long the case itself took, until its own answer came.
    seconds: float
    elections: int
    fencings: int
    #: The most memory that a node had beyond what it had before, the largest of all nodes.
    growth_mib: float
    #: Lines in which a node named what held its loop.
    holds: int
    #: What became of the request, where it was refused or never answered.
    note: str = ""

    @property
    def is_met(self) -> bool:
        return (
            self.worst_answer_ms < MAX_ANSWER_MS
            and not self.elections
            and not self.fencings
            and (self.growth_mib < MAX_GROWTH_MIB or self.case.startswith("loop-partitions"))
        )
