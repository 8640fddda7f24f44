"""A value for a field of a request: what a client would send, or the extremes that none does."""

from random import Random
from typing import Final
from uuid import UUID

from tests.fuzz import world as w
from tests.fuzz.world import World

_PARTITIONS: Final = (0, 0, 0, 1, 1, 2, 3)
_OFFSETS: Final = (0, 0, 1, 5, 10, 100, -1, -2)
_EPOCHS: Final = (-1, 0, 0, 1, 2)
_SIZES: Final = (0, 1, 1024, 65536, 1 << 20)
_PLAIN_INTEGERS: Final[dict[str, tuple[int, ...]]] = {
    "acks": (-1, -1, 1, 1, 0),
    "committed_offset": _OFFSETS,
    "count": (1, 2, 3, 4),
    "election_type": (0, 0, 1),
    "fetch_offset": _OFFSETS,
    "generation_id": (0, 1, 2, -1),
    "generation_id_or_member_epoch": (0, 1, 2, -1),
    "isolation_level": (0, 1),
    "max_bytes": _SIZES,
    "max_wait_ms": (0, 0, 1, 5),
    "member_epoch": (0, 0, 0, 1, 2, -1, -2),
    "min_bytes": (0, 0, 1),
    "num_partitions": (-1, 1, 1, 2, 3),
    "offset": _OFFSETS,
    "partition_max_bytes": _SIZES,
    "rebalance_timeout_ms": (1, 100, 1000),
    "replica_id": (-1, -1, -1, -2, 7),
    "replication_factor": (-1, 1, 1, 3),
    "resource_type": (2, 2, 4, 8, 16, 32, 1, 0),
    "session_timeout_ms": (6000, 10_000, 30_000),
    "timeout_ms": (0, 5, 100, 1000),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000),
    "transaction_timeout_ms": (1, 1000, 60_000),
}
_PARTITION_FIELDS: Final = {"partition", "partition_index", "partition_indexes", "partitions", "index"}
_NODE_FIELDS: Final = {"broker_id", "broker_ids", "replicas", "voter_id", "validated_broker_id", "replica_id"}

_TOPIC_FIELDS: Final = {"topic", "topic_name", "topic_names", "subscribed_topic_names"}
_GROUP_FIELDS: Final = {"group_id", "group_ids", "groups", "groups_names"}
_TRANSACTION_FIELDS: Final = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
_CONFIG_FIELDS: Final = {"configuration_keys"}
_PLAIN_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "entity_name": ("quota-a", "quota-b"),
    "entity_type": ("user", "client-id", "ip"),
    "group_instance_id": ("static-a", "static-b"),
    "instance_id": ("static-a", "static-b"),
    "protocol_name": ("range", "roundrobin"),
    "protocol_type": ("consumer", "connect"),
    "rack_id": ("", "a"),
    "server_assignor": ("uniform", "range"),
    "state_filters": ("Ongoing", "Empty", "CompleteAbort"),
    "states_filter": ("Stable", "Empty", "Dead"),
    "subscribed_topic_regex": ("fuzz.*", "", "stand.+", "(a|b)*c"),
    "transactional_id_pattern": ("tx-.*", "", ".+"),
    "types_filter": ("classic", "consumer"),
}
_TOPICS: Final = (
    *w.FUZZ_TOPICS * 2,
    *(w.STANDING_TOPIC, w.COMPACTED_TOPIC) * 4,
    w.WITNESS_TOPIC,
    w.WITNESS_TOPIC,
    *w.RESERVED_TOPICS,
    w.UNKNOWN_TOPIC,
)
_HOSTILE_TOPICS: Final = (*w.IMPOSSIBLE_TOPICS, *w.RESERVED_TOPICS, w.UNKNOWN_TOPIC)


class Values:
    def __init__(self, random: Random, world: World) -> None:
        self._random = random
        self._world = world
        self._members = (*w.MEMBER_IDS, *world.member_ids)
        #: The producer that a request is about: its id and epoch are drawn one after the other.
        self._producer = world.producers[0]

    def integer(self, name: str, size: int, hostility: float, *, signed: bool = True) -> int:
        random = self._random
        if random.random() < hostility:
            return self._extreme(size, signed=signed)
        if name in _PARTITION_FIELDS:
            return random.choice(_PARTITIONS)
        plain = _PLAIN_INTEGERS.get(name)
        if plain is not None:
            return random.choice(plain)
        if name in _NODE_FIELDS:
            return random.choice(self._world.node_ids)
        if "producer_id" in name:
            self._producer = random.choice(self._world.producers)
            return self._producer[0]
        if "producer_epoch" in name:
            return self._producer[1]
        if "epoch" in name:
            return random.choice(_EPOCHS)
        return random.randrange(5)

    def text(self, name: str, owner: str, hostility: float) -> str:
        random = self._random
        is_config = "Config" in owner or name in _CONFIG_FIELDS
        if random.random() < hostility:
            if name in _TOPIC_FIELDS or name in ("name", "resource_name"):
                return random.choice(_HOSTILE_TOPICS)
            return random.choice(w.HOSTILE_TEXTS)
        plain = _PLAIN_TEXTS.get(name)
        if plain is not None:
            return random.choice(plain)
        if name in _GROUP_FIELDS:
            return random.choice(w.GROUPS)
        if name in _TRANSACTION_FIELDS:
            return random.choice(w.TRANSACTIONAL_IDS)
        if name == "member_id":
            return random.choice(self._members)
        if name == "cluster_id":
            return self._world.cluster_id
        if name == "value":
            return random.choice(w.CONFIG_VALUES)
        if is_config and name != "resource_name":
            return random.choice(w.CONFIG_NAMES)
        if name in ("key", "coordinator_keys"):
            return random.choice(w.CONFIG_NAMES if "Op" in owner else w.GROUPS + w.TRANSACTIONAL_IDS)
        if name == "resource_name" and random.random() < 0.3:
            return str(random.choice(self._world.node_ids))
        return random.choice(_TOPICS)

    def uuid(self, name: str, hostility: float) -> UUID:
        random = self._random
        if random.random() < hostility:
            return random.choice((w.NO_ID, UUID(int=1), UUID(int=2**128 - 1), UUID(int=random.getrandbits(128))))
        return random.choice(self._world.directory_ids if "directory" in name else self._world.topic_ids)

    def double(self) -> float:
        return self._random.choice((0.0, 1.0, -1.0, 1024.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan")))

    def octets(self) -> bytes:
        random = self._random
        if random.random() < 0.5:  # As a consumer's subscription begins: a version, one topic.
            return random.choice(_SUBSCRIPTIONS)
        return random.randbytes(random.choice((0, 1, 2, 3, 16, 100, 1000)))

    def _extreme(self, size: int, *, signed: bool) -> int:
        random = self._random
        bits = size * 8
        smallest, largest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        kind = random.randrange(6)
        if kind == 0:
            return smallest
        if kind == 1:
            return largest
        if kind == 2:
            return random.choice((-3, -2, -1, 0, 1)) if signed else random.choice((0, 1))
        if kind == 3:
            return random.randint(smallest, largest)
        power = 1 << random.randrange(bits - 1)
        near = power + random.choice((-1, 0, 1))
        return max(smallest, min(largest, -near if signed and kind == 4 else near))


def _subscription(version: int, count: int, topic: bytes) -> bytes:
    return b"".join([version.to_bytes(2), count.to_bytes(4), len(topic).to_bytes(2), topic, b"\0\0\0\0"])


_SUBSCRIPTIONS: Final = (
    _subscription(0, 1, b"standing"),
    _subscription(1, 1, b"standing") + b"\0\0\0\0",
    _subscription(3, 1, b"fuzz-a") + b"\0\0\0\0\0\0\0\1\xff\xff",
    _subscription(0, 2**31 - 1, b"standing"),
    _subscription(0x7FFF, 1, b"standing"),
    _subscription(0, 1, b"\xff\xfe"),
)
