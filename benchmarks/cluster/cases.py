"""What is measured of a cluster: parts, cases, faults, goals, and the names by which they are reported. Pure."""

from enum import StrEnum

import msgspec

from benchmarks.cases import Goal

PREFIX = "cluster"


class Part(StrEnum):
    TOPICS = "cluster-topics"
    THROUGHPUT = "cluster-throughput"
    FAILOVER = "cluster-failover"


START = "cluster-start"
START_IN_PROCESS = "cluster-start-in-process"
TOPICS_CREATE = "cluster-topics-create"
TOPICS_METADATA = "cluster-topics-metadata"
TOPICS_RESTART_SERVING = "cluster-topics-restart-serving"
TOPICS_RESTART_WHOLE = "cluster-topics-restart-whole"
TOPICS_MEMORY = "cluster-topics-memory"
IDLE_CPU_WITHOUT_TOPICS = "cluster-idle-cpu-no-topics"
IDLE_CPU = "cluster-idle-cpu-all-topics"
COMPILING = "compiling-when-warm"


class ProduceCase(msgspec.Struct, frozen=True, kw_only=True):
    """Write to all partitions, each over a connection of its own to its leader."""

    batch_name: str
    partitions: int

    @property
    def suffix(self) -> str:
        return f"{self.batch_name}-p{self.partitions}"

    @property
    def throughput_name(self) -> str:
        return f"cluster-produce-{self.suffix}"

    def latency_name(self, percentile: int) -> str:
        return f"cluster-latency-{self.suffix}-p{percentile}"


PRODUCE_CASES = tuple(
    ProduceCase(batch_name=batch_name, partitions=partitions)
    for batch_name in ("16k", "64k", "1m")
    for partitions in (1, 12)
)
QUICK_PRODUCE_CASES = tuple(case for case in PRODUCE_CASES if case.batch_name == "64k")


class Fault(StrEnum):
    """What happens to which node, while writes go to one partition."""

    KILL_LEADER = "kill -9, partition leader"
    KILL_QUORUM_LEADER = "kill -9, quorum leader and follower of the partition"
    KILL_BOTH = "kill -9, leader of both"
    FREEZE_LEADER = "SIGSTOP, partition leader"
    FREEZE_BOTH = "SIGSTOP, leader of both"
    CUT_LEADER = "network cut, partition leader"
    CUT_BOTH = "network cut, leader of both"

    @property
    def kills(self) -> bool:
        return self.name.startswith("KILL")

    @property
    def freezes(self) -> bool:
        return self.name.startswith("FREEZE")

    @property
    def cuts(self) -> bool:
        return self.name.startswith("CUT")

    @property
    def hits_partition_leader(self) -> bool:
        return self is not Fault.KILL_QUORUM_LEADER

    @property
    def hits_both(self) -> bool:
        return self.name.endswith("BOTH")


class Client(StrEnum):
    LIBRDKAFKA = "librdkafka"
    JAVA = "Java"


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault is made. One with a killed Apache Kafka node takes about 20 s, most of it its session."""

    killed: int
    silent: int  # Frozen or cut off.

    def of(self, fault: Fault) -> int:
        return self.killed if fault.kills else self.silent


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for both systems, the rounds of the failover apart."""

    topics: int
    idle_seconds: float
    start_repeats: int
    metadata_requests: int
    repeats: int
    latency_repeats: int
    produce_seconds: float
    latency_seconds: float
    warm_up_timeout_s: float
    quorate_rounds: Rounds
    apache_kafka_rounds: Rounds
    # How long a client is waited for after a node went silent. Requests in flight to it hold a stock client up until
    # its own timeout (30 s in Java, 60 s in librdkafka), whatever the cluster does.
    silent_client_limit_s: float
    produce_cases: tuple[ProduceCase, ...] = PRODUCE_CASES


FULL = ClusterSettings(
    topics=1000,
    idle_seconds=10.0,
    start_repeats=3,
    metadata_requests=20,
    repeats=3,
    latency_repeats=3,
    produce_seconds=1.5,
    latency_seconds=2.0,
    warm_up_timeout_s=240.0,  # Three virtual machines that share two cores compile for long.
    quorate_rounds=Rounds(killed=50, silent=25),  # Two faults of each silent kind: 50 freezes, 50 cuts.
    apache_kafka_rounds=Rounds(killed=3, silent=2),
    silent_client_limit_s=4.0,
)
QUICK = ClusterSettings(
    topics=100,
    idle_seconds=4.0,
    start_repeats=1,
    metadata_requests=5,
    repeats=1,
    latency_repeats=1,
    produce_seconds=1.0,
    latency_seconds=1.0,
    warm_up_timeout_s=10.0,
    quorate_rounds=Rounds(killed=3, silent=1),
    apache_kafka_rounds=Rounds(killed=1, silent=1),
    silent_client_limit_s=4.0,
    produce_cases=QUICK_PRODUCE_CASES,
)

RATIO_GOALS = (
    Goal(
        text="replicated produce, 64 KiB and 1 MiB batches: >= 1.0",
        prefixes=("cluster-produce-64k", "cluster-produce-1m"),
        at_least=1.0,
    ),
    Goal(
        text="p99 latency at half load: <= 1.0",
        prefixes=tuple(case.latency_name(99) for case in PRODUCE_CASES),
        at_most=1.0,
    ),
)
MAX_START_S = 1.0
MAX_START_IN_PROCESS_S = 0.3
MAX_IDLE_CPU_SHARE = 0.03
# More than this share of a core between an idle cluster without topics and one with all of them is growth, not noise.
MAX_IDLE_CPU_GROWTH = 0.005
MAX_KILLED_P99_MS = 250.0
MAX_SILENT_MS = 2000.0
