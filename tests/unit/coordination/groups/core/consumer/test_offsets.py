"""Offsets of consumer groups: who may commit, fetch and delete them, and when a group is gone."""

import msgspec

from quorate.coordination.core.effects import TransactionalProducer
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    CommitOffsets,
    CommitOffsetsResult,
    DeleteGroup,
    DeleteGroupResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    FetchOffsets,
    FetchOffsetsResult,
    ListGroups,
    ListGroupsResult,
)
from quorate.coordination.groups.core.consumer.commands import LEAVE_EPOCH
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId, ProducerEpoch, ProducerId
from tests.unit.coordination.groups.core.consumer.talk import ConsumerConversation
from tests.unit.coordination.groups.core.conversation import GROUP, commit_request, partition

A = MemberId("a")


def commit(talk: ConsumerConversation, command: CommitOffsets) -> ErrorCode:
    return talk.ask(command, CommitOffsetsResult).errors[partition()]


def test_members_commit_with_the_epoch_that_they_are_in() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)

    assert commit(talk, commit_request(7, A, 1)) is ErrorCode.NONE
    assert commit(talk, commit_request(8, A, 0)) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(talk, commit_request(8, A, 2)) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(talk, commit_request(8, MemberId("b"), 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(talk, commit_request(8, NO_MEMBER_ID, -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    old_version = msgspec.structs.replace(commit_request(8, A, 1), supports_member_epochs=False)
    assert commit(talk, old_version) is ErrorCode.UNSUPPORTED_VERSION
    assert talk.committed_offset() == 7


def test_a_producer_commits_in_a_transaction_with_the_epoch_of_its_member_or_for_none() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)

    def in_transaction(command: CommitOffsets) -> CommitOffsets:
        return msgspec.structs.replace(command, transaction=TransactionalProducer(ProducerId(7), ProducerEpoch(0)))

    assert commit(talk, in_transaction(commit_request(7, A, 1))) is ErrorCode.NONE
    assert commit(talk, in_transaction(commit_request(8, A, 0))) is ErrorCode.ILLEGAL_GENERATION
    assert commit(talk, in_transaction(commit_request(8, MemberId("b"), 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(talk, in_transaction(commit_request(9, NO_MEMBER_ID, -1))) is ErrorCode.NONE
    assert talk.committed_offset() is None


def test_tools_commit_for_a_group_without_members() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)
    talk.beat("a", LEAVE_EPOCH)

    assert commit(talk, commit_request(5)) is ErrorCode.NONE
    assert talk.committed_offset() == 5


def test_members_fetch_with_the_epoch_that_they_are_in() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)
    commit(talk, commit_request(7, A, 1))

    def fetch(member_id: str | None, epoch: int) -> ErrorCode:
        named = None if member_id is None else MemberId(member_id)
        command = FetchOffsets(group_id=GROUP, topic_partitions=None, member_id=named, member_epoch=epoch)
        return talk.ask(command, FetchOffsetsResult).error

    assert fetch("a", 1) is ErrorCode.NONE
    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)
    commit(talk, commit_request(7, A, 1))
    delete = DeleteOffsets(group_id=GROUP, topic_partitions=(partition(),))

    assert talk.ask(delete, DeleteOffsetsResult).errors[partition()] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    talk.beat("a", LEAVE_EPOCH)
    assert talk.ask(delete, DeleteOffsetsResult).errors[partition()] is ErrorCode.NONE
    assert talk.committed_offset() is None


def test_group_without_members_is_deleted_and_leaves_only_tombstones() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0, pattern="ord.*")
    commit(talk, commit_request(7, A, 1))
    assert talk.ask(DeleteGroup(group_id=GROUP), DeleteGroupResult).error is ErrorCode.NON_EMPTY_GROUP

    talk.beat("a", LEAVE_EPOCH)
    assert talk.ask(DeleteGroup(group_id=GROUP), DeleteGroupResult).error is ErrorCode.NONE
    assert talk.ask(DeleteGroup(group_id=GROUP), DeleteGroupResult).error is ErrorCode.GROUP_ID_NOT_FOUND
    latest = dict(talk.log)
    assert set(latest.values()) == {None}
    talk.restart()
    assert talk.ask(ListGroups(), ListGroupsResult).groups == ()


def test_offsets_of_an_abandoned_group_expire_and_the_group_with_them() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)
    commit(talk, commit_request(7, A, 1))
    talk.advance(talk.config.offsets_retention_ms + 2 * talk.config.offsets_retention_check_interval_ms)

    assert talk.committed_offset() is None
    assert talk.ask(ListGroups(), ListGroupsResult).groups == ()
    assert set(dict(talk.log).values()) == {None}
