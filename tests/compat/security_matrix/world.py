"""What both nodes hold before anybody is let in, and the super user's connection that made it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages import consumer_group_heartbeat, init_producer_id, offset_commit
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from quorate.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.schema import Request, Response
from tests.compat.raw_records import batch, produce
from tests.compat.security_matrix.conditions import CONDITIONS
from tests.compat.security_matrix.logins import credentials, log_in
from tests.compat.security_matrix.names import ADMIN, GONE, HERE, LIVE, PRODUCERS, FreshNames, missing_id
from tests.compat.security_matrix.targets import Target, connect
from tests.eventually import eventually

#: Of the transactions that stay open.
_TIMEOUT_MS: Final = 3_000_000
_MEMBER: Final = "member-of-the-group-0"
_ANY: Final = 1
_GROUPS, _TRANSACTIONS = 0, 1
AnyResponse = TypeVar("AnyResponse", bound=Response)


class World:
    def __init__(self, target: Target, *, authorizes: bool = True) -> None:
        self.target = target
        self.authorizes = authorizes
        self.fresh = FreshNames()
        self.ids: dict[str, UUID] = {name: missing_id(name) for name in GONE}
        #: Of a delegation token of the super user's.
        self.hmac = b""
        self._admin = connect(target, "SASL_PLAINTEXT")

    def close(self) -> None:
        self._admin.close()

    def ask(self, request: Request, version: int, response_type: type[AnyResponse]) -> AnyResponse:
        """As the super user."""
        return self._admin.ask(request, version, response_type)

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def build(self) -> None:
        assert log_in(self._admin, credentials(ADMIN)).error_code == 0
        if self.authorizes:
            self._make_acls([acl for condition in CONDITIONS for acl in condition.acls()])
        self.make_topics(HERE)
        for key_type in (_GROUPS, _TRANSACTIONS):
            self._await_coordinators(key_type)
        for name in HERE:
            produced = produce(self._admin, name, batch(1))
            assert produced.error_code == 0, produced
            self.commit_offsets(name, [name])
        for group in LIVE:
            self._join(group)
        for name in HERE:
            self._begin_transaction(name)
        for name in PRODUCERS:
            self.init_producer(name)
        token = self.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, CreateDelegationTokenResponse)
        assert token.error_code == 0, token
        self.hmac = bytes(token.hmac)

    def make_topics(self, names: Iterable[str]) -> None:
        """Those that are not there; returns when all are, and have leaders."""
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        made = self.ask(CreateTopicsRequest(topics=wanted), 7, CreateTopicsResponse)
        for topic in made.topics:
            assert topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), topic
        # A broker may still know an earlier topic of the name.
        new = {topic.name: topic.topic_id for topic in made.topics if topic.error_code == ErrorCode.NONE}
        eventually(lambda: self._learn_ids([topic.name for topic in wanted], new), "topics with leaders")

    def commit_offsets(self, group: str, topics: Sequence[str]) -> None:
        """Makes the group, if there is none."""
        partition = offset_commit.OffsetCommitRequestPartition(committed_offset=1)
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[offset_commit.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in topics],
        )

        def committed() -> bool:
            answer = self.ask(request, 8, offset_commit.OffsetCommitResponse)
            return {each.error_code for topic in answer.topics for each in topic.partitions} == {0}

        eventually(committed, f"offsets of {group}")

    def init_producer(self, name: str) -> init_producer_id.InitProducerIdResponse:
        request = init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)

        def answer() -> init_producer_id.InitProducerIdResponse | None:
            got = self.ask(request, 4, init_producer_id.InitProducerIdResponse)
            return got if got.error_code == 0 else None

        return eventually(answer, f"a producer id for {name}")

    def _learn_ids(self, names: Sequence[str], new: Mapping[str, UUID]) -> bool:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        topics = self.ask(request, 12, MetadataResponse).topics
        for topic in topics:
            if topic.name is None or topic.error_code or any(each.error_code for each in topic.partitions):
                return False
            if topic.topic_id != new.get(topic.name, topic.topic_id):
                return False
            self.ids[topic.name] = topic.topic_id
        return True

    def _make_acls(self, acls: Sequence[AclCreation]) -> None:
        created = self.ask(CreateAclsRequest(creations=acls), 3, CreateAclsResponse)
        assert {result.error_code for result in created.results} == {0}, created
        everything = DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )

        def there() -> bool:
            found = self.ask(everything, 3, DescribeAclsResponse)
            return sum(len(resource.acls) for resource in found.resources) == len(acls)

        eventually(there, "all ACLs in force")

    def _await_coordinators(self, key_type: int) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[*HERE, *LIVE])

        def found() -> bool:
            answer = self.ask(request, 4, FindCoordinatorResponse)
            return not any(each.error_code for each in answer.coordinators)

        eventually(found, "coordinators")

    def _join(self, group: str) -> None:
        """A member that stays, with topics of both kinds assigned to it."""
        epoch = 0

        def stable() -> bool:
            nonlocal epoch
            is_first = epoch == 0
            request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=_MEMBER,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000 if is_first else -1,
                subscribed_topic_names=HERE if is_first else None,
                topic_partitions=() if is_first else None,
            )
            answer = self.ask(request, 1, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
            if answer.error_code:
                assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, answer
                return False
            epoch = answer.member_epoch
            return answer.assignment is not None and len(answer.assignment.topic_partitions) == len(HERE)

        eventually(stable, f"a member of {group} with its topics")

    def _begin_transaction(self, name: str) -> None:
        producer = self.init_producer(name)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in HERE],
        )
        answer = self.ask(request, 3, AddPartitionsToTxnResponse)
        codes = {
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        assert codes == {0}, answer
