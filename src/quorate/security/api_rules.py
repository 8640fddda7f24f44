"""What each API asks before it is served: operation, resource, and where the refusal goes, as in Apache Kafka 4.3.

This is the one table. ``quorate.security.access`` applies it to a request; what can only be asked once an answer is
made, of groups that are listed for example, is in it too, with ``from_state``, and its handler applies it then.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import ApiKey
from quorate.security.acls import AclOperation, AclResourceType

_AUTHORIZATION_FAILED: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class RefusalPlace(Enum):
    """Where the error goes."""

    #: The whole request is answered with it, and nothing is done.
    ANSWER = auto()
    #: What the name belongs to gets it; the rest is served.
    ELEMENT = auto()
    #: Nowhere: it is left out, as if it did not exist.
    OMITTED = auto()


class AclAsk(msgspec.Struct, frozen=True, kw_only=True):
    operation: AclOperation
    resource_type: AclResourceType
    #: Where in the request the names are, as ``topics.name``. Topic ids are looked up first. Empty for the cluster.
    names: str = ""
    #: The names come from the node's state or from what the answer would hold: the handler asks.
    from_state: bool = False
    refusal: RefusalPlace = RefusalPlace.ANSWER
    #: None for the one that belongs to the resource type.
    error: ErrorCode | None = None
    first_version: int = 0
    last_version: int = 2**15 - 1
    #: Of requests; of elements with names where ``names`` has a dot.
    only_if: Callable[[Any], bool] | None = None
    #: An operation on the cluster that makes this ask needless.
    unless_cluster: AclOperation | None = None
    #: Enough too: that there can be a resource of the type that it is allowed on.
    or_on_any: tuple[AclOperation, AclResourceType] | None = None
    #: A denial is no attempt that the audit log has to tell.
    is_quiet: bool = False

    @property
    def error_code(self) -> ErrorCode:
        return self.error or _AUTHORIZATION_FAILED[self.resource_type]


_Op, _On, _At = AclOperation, AclResourceType, RefusalPlace


def _cluster(operation: AclOperation, **others: Any) -> tuple[AclAsk, ...]:
    return (AclAsk(operation=operation, resource_type=_On.CLUSTER, **others),)


def _topics(operation: AclOperation, names: str = "topics.name", **others: Any) -> AclAsk:
    return AclAsk(operation=operation, resource_type=_On.TOPIC, names=names, refusal=_At.ELEMENT, **others)


def _group(operation: AclOperation) -> AclAsk:
    return AclAsk(operation=operation, resource_type=_On.GROUP, names="group_id")


def _groups(operation: AclOperation, names: str) -> tuple[AclAsk, ...]:
    return (AclAsk(operation=operation, resource_type=_On.GROUP, names=names, refusal=_At.ELEMENT),)


def _transaction(names: str = "transactional_id", last_version: int = 2**15 - 1) -> AclAsk:
    return AclAsk(operation=_Op.WRITE, resource_type=_On.TRANSACTIONAL_ID, names=names, last_version=last_version)


def _from_state(
    operation: AclOperation, resource_type: AclResourceType, refusal: RefusalPlace, **others: Any
) -> AclAsk:
    return AclAsk(operation=operation, resource_type=resource_type, from_state=True, refusal=refusal, **others)


#: Kafka's codes of config resources.
_TOPIC_CONFIGS, _BROKER_CONFIGS, _BROKER_LOGGERS, _CLIENT_METRICS, _GROUP_CONFIGS = 2, 4, 8, 16, 32
_CLUSTER_CONFIGS: Final = (_BROKER_CONFIGS, _BROKER_LOGGERS, _CLIENT_METRICS)


def _configs(operation: AclOperation) -> tuple[AclAsk, ...]:
    return (
        AclAsk(
            operation=operation,
            resource_type=_On.CLUSTER,
            refusal=_At.ELEMENT,
            only_if=lambda request: any(each.resource_type in _CLUSTER_CONFIGS for each in request.resources),
        ),
        AclAsk(
            operation=operation,
            resource_type=_On.TOPIC,
            names="resources.resource_name",
            refusal=_At.ELEMENT,
            only_if=lambda resource: resource.resource_type == _TOPIC_CONFIGS,
        ),
        AclAsk(
            operation=operation,
            resource_type=_On.GROUP,
            names="resources.resource_name",
            refusal=_At.ELEMENT,
            only_if=lambda resource: resource.resource_type == _GROUP_CONFIGS,
        ),
    )


_GROUP_COORDINATOR, _TRANSACTION_COORDINATOR, _SHARE_COORDINATOR = range(3)


def _coordinator(key_type: int, resource_type: AclResourceType) -> tuple[AclAsk, ...]:
    def is_wanted(request: Any) -> bool:
        return bool(request.key_type == key_type)

    return (
        AclAsk(operation=_Op.DESCRIBE, resource_type=resource_type, names="key", last_version=3, only_if=is_wanted),
        AclAsk(
            operation=_Op.DESCRIBE,
            resource_type=resource_type,
            names="coordinator_keys",
            first_version=4,
            refusal=_At.ELEMENT,
            only_if=is_wanted,
        ),
    )


# What handlers ask themselves, when they know of what.
FETCHED_TOPICS: Final = _from_state(_Op.READ, _On.TOPIC, _At.ELEMENT)  # A fetch session names most of them.
LISTED_TOPICS: Final = _from_state(_Op.DESCRIBE, _On.TOPIC, _At.OMITTED, is_quiet=True)
TOPICS_TO_CREATE: Final = _from_state(_Op.CREATE, _On.TOPIC, _At.ELEMENT, unless_cluster=_Op.CREATE)
CONFIGS_OF_CREATED_TOPICS: Final = _from_state(_Op.DESCRIBE_CONFIGS, _On.TOPIC, _At.OMITTED, is_quiet=True)
LISTED_OFFSETS: Final = _from_state(_Op.DESCRIBE, _On.TOPIC, _At.OMITTED)
LISTED_GROUPS: Final = _from_state(_Op.DESCRIBE, _On.GROUP, _At.OMITTED, unless_cluster=_Op.DESCRIBE, is_quiet=True)
TOPICS_OF_DESCRIBED_GROUPS: Final = _from_state(_Op.DESCRIBE, _On.TOPIC, _At.ELEMENT)
TOPICS_OF_DESCRIBED_TRANSACTIONS: Final = _from_state(_Op.DESCRIBE, _On.TOPIC, _At.OMITTED)
LISTED_TRANSACTIONS: Final = _from_state(_Op.DESCRIBE, _On.TRANSACTIONAL_ID, _At.OMITTED)
SUBSCRIBED_BY_PATTERN: Final = _from_state(_Op.DESCRIBE, _On.TOPIC, _At.OMITTED, is_quiet=True)
#: Of topics that are to be deleted: whether a topic that was named by its id may be named in the answer.
NAMES_OF_TOPICS_TO_DELETE: Final = _from_state(
    _Op.DESCRIBE, _On.TOPIC, _At.OMITTED, unless_cluster=_Op.DELETE, is_quiet=True
)
#: Where the owner is not the requester; the name is the owner as a principal.
TOKENS_FOR_OTHERS: Final = _from_state(_Op.CREATE_TOKENS, _On.USER, _At.ANSWER)
#: Of tokens of others: either of the two is enough. The names are the token's id, and the owner as a principal.
DESCRIBED_TOKENS: Final = _from_state(_Op.DESCRIBE, _On.DELEGATION_TOKEN, _At.OMITTED)
DESCRIBED_TOKENS_OF_OWNERS: Final = _from_state(_Op.DESCRIBE_TOKENS, _On.USER, _At.OMITTED)
#: Whether an answer says which operations on the cluster are authorized; 0 where this is denied.
CLUSTER_OPERATIONS: Final = _from_state(_Op.DESCRIBE, _On.CLUSTER, _At.OMITTED)

#: Everybody is served: before anybody can have shown who they are, or about the client itself.
NOTHING: Final[tuple[AclAsk, ...]] = ()


def is_follower(request: Any) -> bool:
    """Of a Fetch: whether it is sent as by a replica."""
    return bool(request.replica_id >= 0 or request.replica_state.replica_id >= 0)


#: Where a batch says which format it has, and whether it is part of a transaction.
_MAGIC_AT, _ATTRIBUTES_AT, _IS_TRANSACTIONAL = 16, 22, 0x10
_MAGIC: Final = 2


def _has_transactional_records(request: Any) -> bool:
    return any(
        partition.records is not None
        and len(partition.records) > _ATTRIBUTES_AT
        and partition.records[_MAGIC_AT] == _MAGIC
        and partition.records[_ATTRIBUTES_AT] & _IS_TRANSACTIONAL
        for topic in request.topic_data
        for partition in topic.partition_data
    )


_V3_TRANSACTION: Final = "v3_and_below_transactional_id"

API_RULES: Final[Mapping[ApiKey, tuple[AclAsk, ...]]] = {
    ApiKey.PRODUCE: (
        AclAsk(
            operation=_Op.WRITE,
            resource_type=_On.TRANSACTIONAL_ID,
            names="transactional_id",
            only_if=_has_transactional_records,
        ),
        _topics(_Op.WRITE, "topic_data.name", last_version=12),
        _topics(_Op.WRITE, "topic_data.topic_id", first_version=13),
    ),
    ApiKey.FETCH: (
        AclAsk(
            operation=_Op.CLUSTER_ACTION,
            resource_type=_On.CLUSTER,
            refusal=_At.ELEMENT,
            error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            only_if=is_follower,
        ),
        FETCHED_TOPICS,
    ),
    ApiKey.LIST_OFFSETS: (_topics(_Op.DESCRIBE),),
    ApiKey.METADATA: (
        _topics(_Op.DESCRIBE),
        _topics(_Op.DESCRIBE, "topics.topic_id", first_version=12),
        LISTED_TOPICS,
        TOPICS_TO_CREATE,
        CLUSTER_OPERATIONS,
    ),
    ApiKey.OFFSET_COMMIT: (
        _group(_Op.READ),
        _topics(_Op.READ, last_version=9),
        _topics(_Op.READ, "topics.topic_id", first_version=10),
    ),
    ApiKey.OFFSET_FETCH: (
        AclAsk(operation=_Op.DESCRIBE, resource_type=_On.GROUP, names="group_id", last_version=7),
        AclAsk(
            operation=_Op.DESCRIBE,
            resource_type=_On.GROUP,
            names="groups.group_id",
            refusal=_At.ELEMENT,
            first_version=8,
        ),
        _topics(_Op.DESCRIBE, last_version=7),
        _topics(_Op.DESCRIBE, "groups.topics.name", first_version=8, last_version=9),
        _topics(_Op.DESCRIBE, "groups.topics.topic_id", first_version=10),
        LISTED_OFFSETS,
    ),
    ApiKey.FIND_COORDINATOR: (
        *_coordinator(_GROUP_COORDINATOR, _On.GROUP),
        *_coordinator(_TRANSACTION_COORDINATOR, _On.TRANSACTIONAL_ID),
        AclAsk(
            operation=_Op.CLUSTER_ACTION,
            resource_type=_On.CLUSTER,
            first_version=6,
            only_if=lambda request: request.key_type == _SHARE_COORDINATOR,
        ),
    ),
    ApiKey.JOIN_GROUP: (_group(_Op.READ),),
    ApiKey.HEARTBEAT: (_group(_Op.READ),),
    ApiKey.LEAVE_GROUP: (_group(_Op.READ),),
    ApiKey.SYNC_GROUP: (_group(_Op.READ),),
    ApiKey.DESCRIBE_GROUPS: _groups(_Op.DESCRIBE, "groups"),
    ApiKey.LIST_GROUPS: (LISTED_GROUPS,),
    ApiKey.SASL_HANDSHAKE: NOTHING,
    ApiKey.API_VERSIONS: NOTHING,
    ApiKey.CREATE_TOPICS: (
        _topics(_Op.CREATE, unless_cluster=_Op.CREATE),
        CONFIGS_OF_CREATED_TOPICS,
    ),
    ApiKey.DELETE_TOPICS: (
        _topics(_Op.DELETE, "topic_names", last_version=5, unless_cluster=_Op.DELETE),
        _topics(_Op.DELETE, first_version=6, unless_cluster=_Op.DELETE),
        _topics(_Op.DELETE, "topics.topic_id", first_version=6, unless_cluster=_Op.DELETE),
        NAMES_OF_TOPICS_TO_DELETE,
    ),
    ApiKey.DELETE_RECORDS: (_topics(_Op.DELETE),),
    ApiKey.INIT_PRODUCER_ID: (
        _transaction(),
        AclAsk(
            operation=_Op.TWO_PHASE_COMMIT,
            resource_type=_On.TRANSACTIONAL_ID,
            names="transactional_id",
            first_version=6,
            only_if=lambda request: request.enable2_pc,
        ),
        AclAsk(
            operation=_Op.IDEMPOTENT_WRITE,
            resource_type=_On.CLUSTER,
            only_if=lambda request: request.transactional_id is None,
            or_on_any=(_Op.WRITE, _On.TOPIC),
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_topics(_Op.DESCRIBE, "topics.topic", unless_cluster=_Op.CLUSTER_ACTION),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        AclAsk(operation=_Op.CLUSTER_ACTION, resource_type=_On.CLUSTER, first_version=4),
        _transaction(_V3_TRANSACTION, last_version=3),
        _topics(_Op.WRITE, "v3_and_below_topics.name", last_version=3),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_transaction(), _group(_Op.READ)),
    ApiKey.END_TXN: (_transaction(),),
    ApiKey.WRITE_TXN_MARKERS: (
        AclAsk(operation=_Op.CLUSTER_ACTION, resource_type=_On.CLUSTER, unless_cluster=_Op.ALTER),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_transaction(), _group(_Op.READ), _topics(_Op.READ)),
    ApiKey.DESCRIBE_ACLS: _cluster(_Op.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(_Op.ALTER),
    ApiKey.DELETE_ACLS: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_CONFIGS: _configs(_Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(_Op.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(_Op.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: NOTHING,
    ApiKey.CREATE_PARTITIONS: (_topics(_Op.ALTER),),
    ApiKey.CREATE_DELEGATION_TOKEN: (TOKENS_FOR_OTHERS,),
    ApiKey.RENEW_DELEGATION_TOKEN: NOTHING,  # Who may is part of the token.
    ApiKey.EXPIRE_DELEGATION_TOKEN: NOTHING,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (DESCRIBED_TOKENS, DESCRIBED_TOKENS_OF_OWNERS),
    ApiKey.DELETE_GROUPS: _groups(_Op.DELETE, "groups_names"),
    ApiKey.ELECT_LEADERS: _cluster(_Op.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(_Op.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(_Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(_Op.DESCRIBE),
    ApiKey.OFFSET_DELETE: (_group(_Op.DELETE), _topics(_Op.READ)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(_Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(_Op.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(_Op.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_QUORUM: _cluster(_Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_CLUSTER: (CLUSTER_OPERATIONS,),
    ApiKey.DESCRIBE_PRODUCERS: (_topics(_Op.READ),),
    ApiKey.UNREGISTER_BROKER: _cluster(_Op.ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        AclAsk(
            operation=_Op.DESCRIBE,
            resource_type=_On.TRANSACTIONAL_ID,
            names="transactional_ids",
            refusal=_At.ELEMENT,
        ),
        TOPICS_OF_DESCRIBED_TRANSACTIONS,
    ),
    ApiKey.LIST_TRANSACTIONS: (LISTED_TRANSACTIONS,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _group(_Op.READ),
        AclAsk(operation=_Op.DESCRIBE, resource_type=_On.TOPIC, names="subscribed_topic_names"),
        SUBSCRIBED_BY_PATTERN,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (*_groups(_Op.DESCRIBE, "group_ids"), TOPICS_OF_DESCRIBED_GROUPS),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: NOTHING,
    ApiKey.PUSH_TELEMETRY: NOTHING,
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(_Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_topics(_Op.DESCRIBE), LISTED_TOPICS),
    ApiKey.ADD_RAFT_VOTER: _cluster(_Op.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(_Op.ALTER),
}
