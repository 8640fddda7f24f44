"""What exists on the nodes that are attacked, and the names and numbers that a frame is made of."""

from uuid import UUID

import msgspec

#: Written and read by somebody else while the fuzz runs; it may read it too, and change nothing about it.
WITNESS_TOPIC = "orders"
NO_ID = UUID(int=0)

#: All that the fuzz may create, so that it is robustness that is tested and not how many topics fit.
FUZZ_TOPICS = ("fuzz-a", "fuzz-b", "fuzz-c", "fuzz.d_e", "f" * 249)
#: With records, a group and a transaction from the start.
STANDING_TOPIC = "standing"
COMPACTED_TOPIC = "compacted"
RESERVED_TOPICS = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state")
#: No topic can be called so.
IMPOSSIBLE_TOPICS = (
    "",
    ".",
    "..",
    "../../etc",
    "a/b",
    "g" * 250,
    "new\nline",
    "\x00",
    "\u202e",
    "topic-\U0001f4a5",
    "%s{}%n",
)
#: In some version of the protocol what no node has.
UNKNOWN_TOPIC = "unknown!"

GROUPS = ("group-a", "group-b", "modern", "")
TRANSACTIONAL_IDS = ("tx-a", "tx-b", "tx-c")
MEMBER_IDS = ("", "member-a", "member-b", "00000000-0000-0000-0000-000000000000")
CLIENT_IDS = ("", "client", "line\nbreak", "quote\"'\\", "x" * 32767, "\u0000", "%s%n{}", "\U0001f4a5")

#: Hostile as a value of whatever a string means.
HOSTILE_TEXTS = (
    "", " ", "\x00", "\n", "-1", "null", "None", "true", "NaN", "inf", "-inf", "1e308", "9" * 40, "9223372036854775808",
    "-9223372036854775809", "0x7f", "../../../../etc/passwd", "a" * 255, "b" * 4096, "c" * 32767, "\u0130", "e\u0301",
    "\U0001f4a5" * 100, "\u202e", "%s%d{}", "$" * 64, "(a+)+$", "(" * 300, "[", "\\", "(?P<a>", ".*", "x{1000}",
    "((.?){1000}){9}x", ":", ",", "a:b:c", "0:1,1:2", "*", "host:99999", "127.0.0.1", "ANONYMOUS",
)  # fmt: skip
CONFIG_NAMES = (
    "retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "segment.jitter.ms", "cleanup.policy",
    "compression.type", "compression.gzip.level", "max.message.bytes", "message.timestamp.type", "min.insync.replicas",
    "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "flush.ms", "flush.messages",
    "index.interval.bytes", "segment.index.bytes", "file.delete.delay.ms", "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms", "max.compaction.lag.ms", "delete.retention.ms", "unclean.leader.election.enable",
    "leader.replication.throttled.replicas", "follower.replication.throttled.replicas", "preallocate",
    "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "log.cleaner.backoff.ms", "producer_byte_rate",
    "consumer_byte_rate", "request_percentage", "connection_creation_rate",
)  # fmt: skip
CONFIG_VALUES = (
    "0", "1", "-1", "1024", "1048576", "1000000", "delete", "compact", "compact,delete", "zstd", "gzip", "lz4",
    "snappy", "producer", "uncompressed", "LogAppendTime", "CreateTime", "true", "false", "0.5", "2147483647",
    "9223372036854775807", "0:7,1:7", "*",
)  # fmt: skip


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What only the running nodes can tell. Chosen by place, so that a seed makes the same choices in each."""

    cluster_id: str = "cluster"
    node_ids: tuple[int, ...] = (7,)
    #: Of the witness's topic first.
    topic_ids: tuple[UUID, ...] = (UUID(int=1), UUID(int=2))
    #: With their epochs, of producers that have written.
    producers: tuple[tuple[int, int], ...] = ((0, 0),)
    member_ids: tuple[str, ...] = MEMBER_IDS
    #: Of the nodes, in their order.
    directory_ids: tuple[UUID, ...] = (UUID(int=7),)

    @property
    def witness_topic_id(self) -> UUID:
        return self.topic_ids[0]
