"""``controller_mutation_rate``: what is counted for whom, who is refused, and who only has to wait."""

from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError, ThrottlingError
from quorate.kernel.ids import NodeId, Offset, TopicId, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import decode_outcomes, encode_outcomes
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.decisions import CarriedOut, CreatedTopic, Outcomes
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import QuotaEntityPart

ALICE = QuotaEntityPart("user", "alice")
ANY_USER = QuotaEntityPart("user", None)
#: Eleven samples of a second at 2 partitions a second.
BUCKET = 22


class Quorum:
    """A quorum leader that decides at once, at a time that the test sets."""

    def __init__(self, entity: QuotaEntityPart = ALICE, rate: float = 2.0) -> None:
        ids = iter(range(1, 10_000))
        view = BrokerView(node_id=NodeId(1), static_configs={})
        self._controller = Controller(view, lambda: UUID(int=next(ids)), lambda: 0)
        self.image = MetadataImage()
        self.now_ms = 1_000_000.0
        self.elect()
        self.do(
            c.RegisterBroker(node_id=NodeId(1), host="h", port=1, fenced=False),
            c.AlterClientQuota(entity=(entity,), changes=(c.QuotaChange(key="controller_mutation_rate", value=rate),)),
        )

    def elect(self) -> None:
        """Another leader, which has counted nothing yet."""
        self._quotas = self._controller.mutation_quotas(self.image)

    def do(self, *commands: c.Command) -> Outcomes:
        outcomes, records = self._controller.decide_all(
            self.image,
            commands,
            charge=lambda image, command, decision: self._quotas.charge(image, command, decision, self.now_ms),
        )
        self.image, _ = self.image.replay(records, Offset(self.image.version + 1))
        return outcomes

    def create(self, name: str, count: int, *, user: str = "alice", is_strict: bool = True) -> int | None:
        """For how long who asks has to wait; None where it was made without any."""
        charge = c.Charge(user=user, client_id="app", is_strict=is_strict)
        command = c.CreateTopic(name=name, partition_count=count, replication_factor=1, charged_to=charge)
        return wait_of(self.do(command))

    def grow(self, name: str, total_count: int) -> int | None:
        charge = c.Charge(user="alice", client_id="app", is_strict=True)
        command = c.CreatePartitions(name=TopicName(name), total_count=total_count, charged_to=charge)
        return wait_of(self.do(command))

    def delete(self, name: str) -> int | None:
        charge = c.Charge(user="alice", client_id="app", is_strict=True)
        topic_id = self.image.topics[TopicName(name)].topic_id
        return wait_of(self.do(c.DeleteTopic(topic_id=topic_id, charged_to=charge)))

    def topics(self) -> set[str]:
        return set(self.image.topics)


def wait_of(outcomes: Outcomes) -> int | None:
    (outcome,) = outcomes
    assert isinstance(outcome, CarriedOut | CreatedTopic | ThrottlingError)
    return outcome.throttle_time_ms or None


def test_a_bucket_may_be_overdrawn_once_by_any_number_of_partitions() -> None:
    quorum = Quorum()
    assert quorum.create("large", BUCKET + 10) is None
    assert quorum.create("another", 1) == 5000
    assert quorum.topics() == {"large"}
    quorum.now_ms += 4000
    assert quorum.create("another", 1) == 1000
    quorum.now_ms += 1000
    assert quorum.create("another", 1) is None


def test_all_that_adds_or_takes_away_partitions_is_counted_and_nothing_else() -> None:
    quorum = Quorum()
    assert quorum.create("a", 10) is None
    assert quorum.grow("a", 16) is None
    assert quorum.delete("a") is None  # 10 + 6 + 16
    assert quorum.create("b", 1) == 5000


def test_what_is_refused_costs_nothing() -> None:
    quorum = Quorum()
    quorum.create("a", BUCKET)
    charge = c.Charge(user="alice", client_id="app", is_strict=True)
    again = c.CreateTopic(name="a", partition_count=100, replication_factor=1, charged_to=charge)
    (outcome,) = quorum.do(again)
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert quorum.create("b", 2) is None
    assert quorum.create("c", 1) == 1000


def test_what_was_made_already_and_is_asked_for_again_costs_nothing() -> None:
    quorum = Quorum()
    charge = c.Charge(user="alice", client_id="app", is_strict=True)
    command = c.CreateTopic(
        name="a", partition_count=BUCKET + 2, replication_factor=1, topic_id=TopicId(UUID(int=77)), charged_to=charge
    )
    for _ in range(5):
        assert wait_of(quorum.do(command)) is None
    assert quorum.create("b", 1) == 1000


def test_of_one_request_what_comes_after_the_overdraft_is_refused() -> None:
    quorum = Quorum()
    charge = c.Charge(user="alice", client_id="app", is_strict=True)
    outcomes = quorum.do(
        *(c.CreateTopic(name=n, partition_count=23, replication_factor=1, charged_to=charge) for n in "abc")
    )
    assert [isinstance(outcome, ThrottlingError) for outcome in outcomes] == [False, True, True]
    assert quorum.topics() == {"a"}


def test_a_client_that_does_not_know_the_error_gets_what_it_asks_for_and_waits() -> None:
    quorum = Quorum()
    assert quorum.create("a", BUCKET + 2, is_strict=False) == 1000
    assert quorum.create("b", 4, is_strict=False) == 3000
    assert quorum.topics() == {"a", "b"}


def test_a_default_is_for_each_user_by_itself() -> None:
    quorum = Quorum(entity=ANY_USER)
    quorum.create("a", BUCKET + 2, user="alice")
    assert quorum.create("b", 1, user="alice") == 1000
    assert quorum.create("b", 1, user="bob") is None


def test_nobody_is_charged_for_what_the_cluster_does_itself() -> None:
    quorum = Quorum(entity=ANY_USER, rate=0.001)
    for name in "abc":
        (outcome,) = quorum.do(c.CreateTopic(name=name, partition_count=50, replication_factor=1))
        assert isinstance(outcome, CreatedTopic)


def test_the_next_leader_starts_with_a_full_bucket() -> None:
    quorum = Quorum()
    quorum.create("a", BUCKET + 50)
    quorum.elect()
    assert quorum.create("b", 1) is None


def test_a_changed_rate_counts_from_the_next_command_on() -> None:
    quorum = Quorum()
    quorum.create("a", BUCKET + 2)
    quorum.do(c.AlterClientQuota(entity=(ALICE,), changes=(c.QuotaChange(key="controller_mutation_rate", value=None),)))
    assert quorum.create("b", 1) is None


@pytest.mark.parametrize("wait_ms", [0, 1234])
def test_the_time_to_wait_comes_back_from_the_leader(wait_ms: int) -> None:
    charge = c.Charge(user="alice", client_id="app", is_strict=False)
    command = c.DeleteTopic(topic_id=TopicId(UUID(int=5)), charged_to=charge)
    outcomes, _ = decode_outcomes(encode_outcomes([CarriedOut(wait_ms)], Offset(3)), [command])
    assert outcomes == [CarriedOut(wait_ms)]


def test_a_refusal_comes_back_from_the_leader_with_its_time() -> None:
    command = c.CreateTopic(name="a")
    ((refusal,), _) = decode_outcomes(encode_outcomes([ThrottlingError(77)], Offset(3)), [command])
    assert isinstance(refusal, ThrottlingError)
    assert (refusal.throttle_time_ms, refusal.code) == (77, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert refusal.again().throttle_time_ms == 77
