"""Requests about groups and transactions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from quorate.protocol.apis import ApiKey
from quorate.protocol.messages import (
    add_partitions_to_txn,
    delete_groups,
    describe_groups,
    describe_transactions,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
    write_txn_markers,
)
from quorate.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from quorate.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from quorate.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from quorate.protocol.messages.end_txn import EndTxnRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from quorate.protocol.messages.list_groups import ListGroupsRequest
from quorate.protocol.messages.list_transactions import ListTransactionsRequest
from quorate.protocol.messages.sync_group import SyncGroupRequest
from quorate.protocol.schema import Request
from tests.compat.security_matrix.case import Case, case, case_each
from tests.compat.security_matrix.names import DEAD, DOOMED, GONE, HERE, LIVE, NAMES, OTHER, PREFIX, PRODUCERS
from tests.compat.security_matrix.world import World

_NO_MEMBER: Final = "no-such-member-0000000"
_NO_PRODUCER: Final = 987_654
_TIMEOUT_MS: Final = 60_000
_GROUPS, _TRANSACTIONS, _SHARES = range(3)
_Key = ApiKey


def _each(
    api: ApiKey, what: str, names: Sequence[str], make: Callable[[str, int], Request], *versions: int, **others: Any
) -> tuple[Case, ...]:
    return case_each(api, what, names, lambda name, _world, version: make(name, version), *versions, **others)


def _fresh(
    api: ApiKey, what: str, make: Callable[[str, int], Request], *versions: int, **others: Any
) -> tuple[Case, ...]:
    """For what a request makes: a name that was never used, of either kind."""
    return tuple(
        case(api, f"{what} {prefix}fresh", partial(_of_fresh, make, prefix), *versions, **others)
        for prefix in (OTHER, PREFIX)
    )


def _of_fresh(make: Callable[[str, int], Request], prefix: str, world: World, version: int) -> Request:
    return make(world.fresh(prefix), version)


def _commit(group: str, _version: int) -> offset_commit.OffsetCommitRequest:
    partition = offset_commit.OffsetCommitRequestPartition(committed_offset=1)
    topics = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in NAMES]
    return offset_commit.OffsetCommitRequest(group_id=group, topics=topics)


def _commit_here(world: World) -> None:
    for name in HERE:
        world.commit_offsets(name, HERE)


def _fetched(world: World) -> list[offset_fetch.OffsetFetchRequestTopics]:
    return [
        offset_fetch.OffsetFetchRequestTopics(name=name, topic_id=world.ids[name], partition_indexes=[0])
        for name in NAMES
    ]


def _fetch_offsets(group: str, _version: int) -> offset_fetch.OffsetFetchRequest:
    topics = [offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in NAMES]
    return offset_fetch.OffsetFetchRequest(group_id=group, topics=topics)


def _fetch_offsets_of_groups(world: World, *, all_topics: bool) -> offset_fetch.OffsetFetchRequest:
    topics = None if all_topics else _fetched(world)
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in NAMES]
    )


def _find(key_type: int, keys: Sequence[str], version: int) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    return FindCoordinatorRequest(key_type=key_type, key=keys[0])


def _join(group: str, _version: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_TIMEOUT_MS,
        rebalance_timeout_ms=_TIMEOUT_MS,
        member_id=_NO_MEMBER,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _leave(group: str, version: int) -> leave_group.LeaveGroupRequest:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id=group, member_id=_NO_MEMBER)
    return leave_group.LeaveGroupRequest(group_id=group, members=[leave_group.MemberIdentity(member_id=_NO_MEMBER)])


def _commit_in_transaction(name: str, _version: int) -> txn_offset_commit.TxnOffsetCommitRequest:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(committed_offset=1)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=HERE[1],
        producer_id=_NO_PRODUCER,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=each, partitions=[partition]) for each in NAMES],
    )


def _add_partitions(name: str, topics: Sequence[str], version: int) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    wanted = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in topics]
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name, v3_and_below_producer_id=_NO_PRODUCER, v3_and_below_topics=wanted
        )
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=_NO_PRODUCER, topics=wanted
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])


def _markers(world: World, version: int) -> write_txn_markers.WriteTxnMarkersRequest:
    topics = [write_txn_markers.WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in NAMES]
    marker = write_txn_markers.WritableTxnMarker(producer_id=_NO_PRODUCER, topics=topics)
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def _heartbeat(
    group: str, *, epoch: int = 0, names: Sequence[str] | None = None, regex: str | None = None
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=_NO_MEMBER,
        member_epoch=epoch,
        rebalance_timeout_ms=_TIMEOUT_MS,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        topic_partitions=(),
    )


GROUP_CASES: Final[tuple[Case, ...]] = (
    *_each(_Key.OFFSET_COMMIT, "of", HERE, _commit, 7),
    *_fresh(_Key.OFFSET_COMMIT, "of", _commit),
    *_each(_Key.OFFSET_FETCH, "of", NAMES, _fetch_offsets, 7, last=7),
    *_each(
        _Key.OFFSET_FETCH,
        "of all topics of",
        NAMES,
        lambda group, _version: offset_fetch.OffsetFetchRequest(group_id=group, topics=None),
        first=2,
        last=7,
    ),
    case(
        _Key.OFFSET_FETCH,
        "of groups",
        lambda world, version: _fetch_offsets_of_groups(world, all_topics=False),
        9,
        first=8,
    ),
    case(
        _Key.OFFSET_FETCH,
        "of all topics of groups",
        lambda world, version: _fetch_offsets_of_groups(world, all_topics=True),
        first=8,
    ),
    *_each(
        _Key.OFFSET_DELETE,
        "of",
        HERE,
        lambda group, _version: offset_delete.OffsetDeleteRequest(
            group_id=group,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=name, partitions=[offset_delete.OffsetDeleteRequestPartition()]
                )
                for name in NAMES
            ],
        ),
        before=_commit_here,
    ),
    *_each(
        _Key.OFFSET_DELETE,
        "of",
        GONE,
        lambda group, _version: offset_delete.OffsetDeleteRequest(group_id=group),
    ),
    *_each(_Key.FIND_COORDINATOR, "of group", NAMES, lambda name, v: _find(_GROUPS, [name], v), 1, last=3),
    *_each(
        _Key.FIND_COORDINATOR, "of transaction", NAMES, lambda name, v: _find(_TRANSACTIONS, [name], v), first=1, last=3
    ),
    case(_Key.FIND_COORDINATOR, "of groups", lambda _world, v: _find(_GROUPS, NAMES, v), first=4),
    case(_Key.FIND_COORDINATOR, "of transactions", lambda _world, v: _find(_TRANSACTIONS, NAMES, v), first=4),
    case(_Key.FIND_COORDINATOR, "of shares", lambda _world, v: _find(_SHARES, NAMES, v), first=4),
    *_each(_Key.JOIN_GROUP, "", NAMES, _join, 5, 7),
    *_each(
        _Key.SYNC_GROUP,
        "",
        NAMES,
        lambda group, version: SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=_NO_MEMBER,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
        ),
    ),
    *_each(
        _Key.HEARTBEAT,
        "",
        NAMES,
        lambda group, _version: HeartbeatRequest(group_id=group, generation_id=1, member_id=_NO_MEMBER),
    ),
    *_each(_Key.LEAVE_GROUP, "", NAMES, _leave, 3),
    case(
        _Key.DESCRIBE_GROUPS,
        "with operations",
        lambda _world, version: describe_groups.DescribeGroupsRequest(
            groups=NAMES, include_authorized_operations=version >= 3
        ),
        3,
        5,
        before=_commit_here,
    ),
    case(_Key.LIST_GROUPS, "", lambda _world, _version: ListGroupsRequest(), 4, before=_commit_here, is_list=True),
    case(
        _Key.DELETE_GROUPS,
        "of all kinds",
        lambda _world, _version: delete_groups.DeleteGroupsRequest(groups_names=(*DOOMED, *GONE)),
        before=lambda world: [world.commit_offsets(name, HERE) for name in DOOMED],
    ),
    *_each(
        _Key.CONSUMER_GROUP_HEARTBEAT, "of a stranger to", (*LIVE, *DEAD), lambda name, _v: _heartbeat(name, epoch=3)
    ),
    *_each(
        _Key.CONSUMER_GROUP_HEARTBEAT,
        "with topics to",
        (*LIVE, *DEAD),
        lambda name, _version: _heartbeat(name, epoch=3, names=NAMES),
    ),
    *_each(
        _Key.CONSUMER_GROUP_HEARTBEAT,
        "with a pattern to",
        (*LIVE, *DEAD),
        lambda name, _version: _heartbeat(name, epoch=3, regex=".*-here"),
        first=1,
    ),
    *_fresh(_Key.CONSUMER_GROUP_HEARTBEAT, "to join", lambda name, _v: _heartbeat(name, names=NAMES[1:2])),
    case(
        _Key.CONSUMER_GROUP_DESCRIBE,
        "with operations",
        lambda _world, _version: ConsumerGroupDescribeRequest(
            group_ids=(*LIVE, *DEAD), include_authorized_operations=True
        ),
    ),
    case(
        _Key.CONSUMER_GROUP_DESCRIBE,
        "without operations",
        lambda _world, _version: ConsumerGroupDescribeRequest(group_ids=(*LIVE, *DEAD)),
    ),
    *_each(
        _Key.INIT_PRODUCER_ID,
        "for",
        PRODUCERS,
        lambda name, _version: InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS),
    ),
    *_fresh(
        _Key.INIT_PRODUCER_ID,
        "for",
        lambda name, _version: InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS),
    ),
    case(
        _Key.INIT_PRODUCER_ID,
        "without a transaction",
        lambda _world, _version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MS),
    ),
    *_each(_Key.ADD_PARTITIONS_TO_TXN, "to", NAMES, lambda name, v: _add_partitions(name, NAMES, v), 3, 4),
    *_each(
        _Key.ADD_PARTITIONS_TO_TXN, "of team-here to", NAMES, lambda name, v: _add_partitions(name, HERE[1:], v), 3, 4
    ),
    *_each(
        _Key.ADD_OFFSETS_TO_TXN,
        "to",
        NAMES,
        lambda name, _version: AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=_NO_PRODUCER, group_id=NAMES[1]
        ),
    ),
    *_each(
        _Key.ADD_OFFSETS_TO_TXN,
        "of group",
        NAMES,
        lambda name, _version: AddOffsetsToTxnRequest(
            transactional_id=NAMES[1], producer_id=_NO_PRODUCER, group_id=name
        ),
    ),
    *_each(
        _Key.END_TXN,
        "",
        NAMES,
        lambda name, _version: EndTxnRequest(transactional_id=name, producer_id=_NO_PRODUCER),
    ),
    case(_Key.WRITE_TXN_MARKERS, "to topics", _markers),
    *_each(_Key.TXN_OFFSET_COMMIT, "to", NAMES, _commit_in_transaction),
    case(
        _Key.LIST_TRANSACTIONS,
        "",
        lambda _world, _version: ListTransactionsRequest(),
        is_list=True,
    ),
    case(
        _Key.DESCRIBE_TRANSACTIONS,
        "of all kinds",
        lambda _world, _version: describe_transactions.DescribeTransactionsRequest(transactional_ids=NAMES),
    ),
)
