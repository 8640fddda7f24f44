"""Brokers that register, catch up, are lost, shut down and go for good."""

from uuid import UUID

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, BrokerEpoch, NodeId, Offset
from quorate.metadata.core.commands import (
    AlterTopicConfigs,
    BeginControlledShutdown,
    Command,
    ConfigChange,
    ConfigOperation,
    ElectionKind,
    ElectLeaders,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from quorate.metadata.core.decisions import AcceptedRegistration
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.records import decode_record
from quorate.metadata.core.snapshot import decode_image, encode_image
from tests.unit.metadata.core.cluster import ORDERS, Cluster

SEVEN = NodeId(7)


def test_a_broker_of_a_cluster_starts_fenced_and_is_live_once_it_has_caught_up() -> None:
    cluster = Cluster(nodes=())
    epoch = cluster.register(7, fenced=True, start=1).answer.broker_epoch
    broker = cluster.image.brokers[SEVEN]
    assert (broker.broker_epoch, broker.fenced, broker.peer_address) == (epoch, True, "host-7:9093")
    assert not cluster.image.live_brokers

    cluster.unfence(7)

    assert [broker.node_id for broker in cluster.image.live_brokers] == [7]
    assert cluster.delta.changed_brokers == (SEVEN,)


def test_a_repeated_registration_gets_the_same_epoch_and_changes_nothing() -> None:
    cluster = Cluster(nodes=())
    first = cluster.register(7, start=1)
    again = cluster.register(7, start=1)
    assert (again.answer.broker_epoch, again.records) == (first.answer.broker_epoch, ())
    assert cluster.register(7, start=2).answer.broker_epoch != first.answer.broker_epoch


def test_a_broker_that_lost_its_data_folder_is_refused_until_it_was_removed() -> None:
    cluster = Cluster(nodes=())
    cluster.register(7, start=1)
    cluster.register(7, start=2, folder=1)  # From before folders had ids, and since then.
    with pytest.raises(KafkaError, match=r"does not have the data folder that it had") as refused:
        cluster.register(7, start=3, folder=2)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    cluster.register(7, start=4, folder=1)

    cluster.do(UnregisterBroker(node_id=SEVEN))
    cluster.register(7, start=5, folder=2)

    assert cluster.image.brokers[SEVEN].directory_id == UUID(int=2)
    assert decode_image(encode_image(cluster.image)).brokers == cluster.image.brokers


def without_its_only_complete_replica() -> Cluster:
    """Broker 7 had everything of a partition, broker 100 a part, and broker 7 was removed."""
    cluster = Cluster(nodes=())
    for node in (7, 100):
        cluster.register(node, folder=node)
    cluster.create((7, 100))
    cluster.fence(100)
    cluster.do(UnregisterBroker(node_id=SEVEN, even_with_replicas=True))
    cluster.unfence(100)
    cluster.image = decode_image(encode_image(cluster.image))
    assert (cluster.state().isr, cluster.state().leader) == ((7,), NO_NODE)
    return cluster


def test_a_broker_that_comes_back_without_what_only_it_had_does_not_lead_in_its_place() -> None:
    cluster = without_its_only_complete_replica()
    with pytest.raises(KafkaError, match=r"1 partition\(s\), such as orders-0, wait for what only it had") as refused:
        cluster.register(7, start=2, folder=8)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION

    cluster.do(ElectLeaders(kind=ElectionKind.UNCLEAN, partitions=None))
    cluster.register(7, start=2, folder=8)

    assert (cluster.state().isr, cluster.state().leader) == ((100,), 100)


def test_a_broker_that_comes_back_with_what_only_it_had_leads_again() -> None:
    cluster = without_its_only_complete_replica()
    cluster.register(7, start=2, folder=7)
    assert (cluster.state().isr, cluster.state().leader) == ((7,), 7)


def test_a_topic_that_may_lose_records_waits_for_no_data_folder() -> None:
    cluster = without_its_only_complete_replica()
    change = ConfigChange(key="unclean.leader.election.enable", operation=ConfigOperation.SET, value="true")
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(change,)))
    cluster.register(7, start=2, folder=8)
    assert cluster.state().leader in (7, 100)


def test_broker_epochs_only_grow_even_when_the_newest_broker_has_gone() -> None:
    cluster = Cluster(nodes=())
    epochs = []
    for start in range(1, 6):
        # Decided on a version that stands still, as in a batch of commands.
        decision = cluster.controller.decide(
            cluster.image, RegisterBroker(node_id=SEVEN, host="h", port=1, fenced=False)
        )
        cluster.image, _ = cluster.image.replay(decision.records, cluster.image.version)
        assert isinstance(decision.answer, AcceptedRegistration)
        epochs.append(decision.answer.broker_epoch)
        if start % 2:
            removal = cluster.controller.decide(cluster.image, UnregisterBroker(node_id=SEVEN))
            cluster.image, _ = cluster.image.replay(removal.records, cluster.image.version)
    assert epochs == sorted(set(epochs), key=lambda epoch: epoch or 0)


@pytest.mark.parametrize("kind", [UnfenceBroker, FenceBroker, BeginControlledShutdown])
def test_an_old_start_of_a_broker_is_refused_by_epoch(
    kind: type[UnfenceBroker | FenceBroker | BeginControlledShutdown],
) -> None:
    cluster = Cluster()
    stale = kind(node_id=SEVEN, broker_epoch=BrokerEpoch(cluster.epoch(7) - 1))
    unknown = kind(node_id=NodeId(1), broker_epoch=BrokerEpoch(1))
    assert [_code(cluster, stale), _code(cluster, unknown)] == [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ]


def test_fencing_and_unfencing_twice_changes_nothing() -> None:
    cluster = Cluster()
    assert cluster.unfence(7).records == ()
    cluster.fence(7)
    assert cluster.fence(7).records == ()


def test_a_broker_that_holds_replicas_is_removed_only_on_demand() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    assert _code(cluster, UnregisterBroker(node_id=SEVEN)) is ErrorCode.INVALID_REQUEST

    cluster.do(UnregisterBroker(node_id=SEVEN, even_with_replicas=True))

    assert SEVEN not in cluster.image.brokers
    assert (cluster.state().leader, cluster.state().isr) == (100, (100,))
    assert cluster.image.offline_replicas(cluster.state()) == (7,)
    assert _code(cluster, UnregisterBroker(node_id=SEVEN)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_broker_that_shuts_down_gives_its_leaderships_away_and_gets_no_new_ones() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 7), (4001, 7))

    cluster.shut_down(7)

    assert cluster.image.leader_count(SEVEN) == 0
    assert [cluster.state(index).leader for index in range(3)] == [100, 100, 4001]
    assert all(SEVEN not in cluster.state(index).isr for index in range(3))
    assert cluster.image.is_live(SEVEN)
    cluster.fence(4001)
    assert cluster.state(2).leader == NO_NODE


def test_what_nobody_else_can_lead_stays_with_a_broker_that_shuts_down_until_it_is_fenced() -> None:
    cluster = Cluster()
    cluster.create((7,), name="alone")
    cluster.create((7, 100))
    cluster.fence(100)

    cluster.shut_down(7)
    assert (cluster.state().leader, cluster.state(topic="alone").leader) == (7, 7)

    cluster.unfence(100)
    outcome = cluster.alter_isr(cluster.isr_change((7, 100)))
    assert outcome.error is ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.state().leader, cluster.state().isr) == (100, (100,))
    cluster.fence(7)
    assert (cluster.state(topic="alone").leader, cluster.state(topic="alone").isr) == (NO_NODE, (7,))


def test_a_broker_that_was_shutting_down_leads_nothing_when_its_session_comes_back() -> None:
    cluster = Cluster()
    cluster.create((7, 100), name="careful")
    cluster.create((7, 100), name="careless", unclean_leader_election_enable="true")
    cluster.fence(100)
    cluster.shut_down(7)
    cluster.fence(7)

    cluster.unfence(7)
    cluster.unfence(100)

    # It is in sync and alive: nothing is gained by losing what it holds.
    assert [cluster.state(topic=name).leader for name in ("careful", "careless")] == [NO_NODE, NO_NODE]
    assert [cluster.state(topic=name).isr for name in ("careful", "careless")] == [(7,), (7,)]


def test_a_restart_ends_a_controlled_shutdown() -> None:
    cluster = Cluster()
    cluster.shut_down(7)
    cluster.register(7, start=2)
    assert cluster.image.is_active(SEVEN)


def test_a_broker_in_a_log_from_before_there_was_fencing_is_live() -> None:
    stored = msgspec.msgpack.encode(
        {"kind": "broker-registered", "node_id": 7, "broker_epoch": 1, "host": "h", "port": 1}
    )
    image, _ = MetadataImage().replay([decode_record(stored)], Offset(1))
    assert image.is_active(SEVEN)


def _code(cluster: Cluster, command: Command) -> ErrorCode | None:
    refusal = cluster.refusal(command)
    return None if refusal is None else refusal.code
