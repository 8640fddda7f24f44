"""Deciding the life of a broker: registered, unfenced, fenced, without room, shutting down, removed.

Each decision holds, in one batch, the broker's record and the changes of all partitions that it hosts.

=========================  ==========================  =============================================================
command                    the broker is afterwards    its partitions
=========================  ==========================  =============================================================
RegisterBroker             fenced, or unfenced where   as if it had been lost: others in sync lead. It keeps those
                           it is the whole cluster     where it is the last in sync
UnfenceBroker              unfenced                    it leads those that wait for it
BeginControlledShutdown    unfenced, shutting down     others lead where they can; it gets no new ones
FenceBroker                fenced                      it leaves in-sync sets that have another member, and leads none
ChangeBrokerRoom           with or without room        replicas with room lead; a full one leads where all are full
UnregisterBroker           unknown                     as for FenceBroker; where it still is a replica, it is missing
=========================  ==========================  =============================================================
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_DIRECTORY, BrokerEpoch, NodeId, is_same_directory
from quorate.metadata.core import commands as c
from quorate.metadata.core import records as r
from quorate.metadata.core.decisions import AcceptedRegistration, CarriedOut, Decision, done
from quorate.metadata.core.elections import ElectionRules, Elections
from quorate.metadata.core.image import Broker, MetadataImage


def register_broker(
    image: MetadataImage, rules: ElectionRules, command: c.RegisterBroker
) -> Decision[AcceptedRegistration]:
    """A new start of a broker: a new broker epoch, and a new leader epoch for every partition that it led.

    What it wrote before a crash may be lost in part, so its earlier self counts as lost first: others in sync are
    preferred as leaders, and where there are none the new epoch keeps its old offsets apart from those that follow.
    """
    existing = image.brokers.get(command.node_id)
    if existing is not None and not is_same_directory(existing.directory_id, command.directory_id):
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"Broker {command.node_id} does not have the data folder that it had: what it has acknowledged is lost. "
            f"Remove it from the cluster for good before it starts anew.",
        )
    if existing is not None and existing.incarnation == command.incarnation and command.incarnation != r.NO_INCARNATION:
        return Decision(answer=AcceptedRegistration(existing.broker_epoch))
    if not is_same_directory(image.former_directories.get(command.node_id, NO_DIRECTORY), command.directory_id):
        _check_nothing_waits_for(image, rules, command.node_id)
    elections = Elections(image, rules)
    elections.lose(command.node_id, is_back=True)
    if not command.fenced:
        elections.gain(command.node_id)
    registered = r.BrokerRegistered(
        node_id=command.node_id,
        broker_epoch=BrokerEpoch(max(image.version, image.last_broker_epoch) + 1),
        host=command.host,
        port=command.port,
        rack=command.rack,
        incarnation=command.incarnation,
        directory_id=command.directory_id,
        peer_address=command.peer_address,
        endpoints=command.endpoints,
        fenced=command.fenced,
    )
    return Decision(
        records=(registered, *elections.edits.records()), answer=AcceptedRegistration(registered.broker_epoch)
    )


def _check_nothing_waits_for(image: MetadataImage, rules: ElectionRules, node: NodeId) -> None:
    """A broker that was removed and comes back with another data folder must not lead what it alone had.

    The other replicas would give up what they have of it, to be equal to its empty log.
    """
    waiting = [
        f"{name.topic}-{name.partition}"
        for name, state in image.hosted_partitions(node)
        if node in state.isr and not rules.allows_unclean(image, image.topics[name.topic])
    ]
    if waiting:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"Broker {node} does not have the data folder that it had, and {len(waiting)} partition(s), such as "
            f"{waiting[0]}, wait for what only it had: have other replicas of them elected (an unclean election), or "
            f"delete their topics, and start it again.",
        )


def unfence_broker(image: MetadataImage, rules: ElectionRules, command: c.UnfenceBroker) -> Decision[CarriedOut]:
    broker = checked_broker(image, command.node_id, command.broker_epoch)
    if broker.is_live:
        return done()
    elections = Elections(image, rules)
    if not broker.in_controlled_shutdown:
        elections.gain(broker.node_id)
    unfenced = r.BrokerUnfenced(node_id=broker.node_id, broker_epoch=broker.broker_epoch)
    return done(unfenced, *elections.edits.records())


def fence_broker(image: MetadataImage, rules: ElectionRules, command: c.FenceBroker) -> Decision[CarriedOut]:
    """A broker may be lost before it was unfenced: partitions that wait for it then stop waiting."""
    broker = checked_broker(image, command.node_id, command.broker_epoch)
    elections = Elections(image, rules)
    elections.lose(broker.node_id)
    fenced = r.BrokerFenced(node_id=broker.node_id, broker_epoch=broker.broker_epoch)
    flag = () if broker.fenced else (fenced,)
    return done(*flag, *elections.edits.records())


def begin_controlled_shutdown(
    image: MetadataImage, rules: ElectionRules, command: c.BeginControlledShutdown
) -> Decision[CarriedOut]:
    """Sent again it tries again: a replica that has come into sync since then can take over."""
    broker = checked_broker(image, command.node_id, command.broker_epoch)
    elections = Elections(image, rules)
    elections.vacate(broker.node_id)
    started = r.BrokerShutdownStarted(node_id=broker.node_id, broker_epoch=broker.broker_epoch)
    flag = () if broker.in_controlled_shutdown else (started,)
    return done(*flag, *elections.edits.records())


def change_broker_room(image: MetadataImage, rules: ElectionRules, command: c.ChangeBrokerRoom) -> Decision[CarriedOut]:
    broker = checked_broker(image, command.node_id, command.broker_epoch)
    if broker.has_room == command.has_room:
        return done()
    elections = Elections(image, rules)
    if command.has_room:
        elections.take_over_from_full(broker.node_id)
    else:
        elections.relieve(broker.node_id)
    changed = r.BrokerRoomChanged(node_id=broker.node_id, broker_epoch=broker.broker_epoch, has_room=command.has_room)
    return done(changed, *elections.edits.records())


def unregister_broker(image: MetadataImage, rules: ElectionRules, command: c.UnregisterBroker) -> Decision[CarriedOut]:
    broker = _registered(image, command.node_id)
    held = image.replica_count(broker.node_id)
    if held and not command.even_with_replicas:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker.node_id} still holds {held} replica(s); drain it before it is removed.",
        )
    elections = Elections(image, rules)
    elections.lose(broker.node_id)
    removed = r.BrokerUnregistered(node_id=broker.node_id, broker_epoch=broker.broker_epoch)
    return done(removed, *elections.edits.records())


def checked_broker(image: MetadataImage, node_id: NodeId, broker_epoch: BrokerEpoch) -> Broker:
    """The broker, if the epoch is that of its present start."""
    broker = _registered(image, node_id)
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {node_id} is registered with epoch {broker.broker_epoch}, not {broker_epoch}.",
        )
    return broker


def _registered(image: MetadataImage, node_id: NodeId) -> Broker:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {node_id} is not registered.")
    return broker
