"""One run from one seed: a cluster, transactions, readers of what is committed, faults; in the end all ended as one."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from quorate.kernel.ids import Offset, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.replication.partition import Partition
from tests.simulation.committed_reader import committed_records
from tests.simulation.replication.clients import TOPIC, Client
from tests.simulation.replication.cluster import ClusterShape, ReplicatedCluster
from tests.simulation.replication.history import History
from tests.simulation.replication.watching import ReplicaWatch
from tests.simulation.transactions.application import PARTITION_COUNT, Application
from tests.simulation.transactions.faults import TransactionFaults
from tests.simulation.transactions.findings import Checker, report
from tests.simulation.transactions.ledger import Ledger
from tests.simulation.transactions.producer import FIRST, SECOND
from tests.simulation.transactions.reader import CommittedReader, OffsetReader
from tests.simulation.transactions.verdict import check_outcomes
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.world import World

_REPLICAS = 3
_RECOVERED_WITHIN_S = 40
#: The longest timeout of a transaction, and what it takes to notice and to write the markers.
_ENDED_WITHIN_S = 12
_SLOW_SYNCS = WorkDelay(minimum_ms=10, maximum_ms=60, slow_probability=0.05, slow_ms=500)
_CONFIGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "offsets.topic.num.partitions": 2,
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    shape: ClusterShape
    transactions: int
    committed: int
    #: Known not to be committed.
    aborted: int
    #: That somebody else had taken over before they ended.
    overtaken: int
    shown: int
    virtual_s: float
    digest: str


MakeApplications = Callable[[ReplicatedCluster, History, Ledger], Sequence[Application]]


def usual_applications(cluster: ReplicatedCluster, history: History, ledger: Ledger) -> list[Application]:
    return [
        Application(cluster, history, ledger, name, flows)
        for name, flows in {"first": [FIRST], "second": [SECOND], "both": [FIRST, SECOND]}.items()
    ]


def run_seed(
    seed: int,
    shape: ClusterShape | None = None,
    faults: Sequence[str] = (),
    applications: MakeApplications = usual_applications,
) -> Report:
    """Raises if an invariant does not hold. Shape and faults are drawn unless they are given."""
    with World(seed, work_delay=_SLOW_SYNCS if seed % 3 == 0 else None) as world:
        shape = shape or draw_shape(seed)
        cluster = ReplicatedCluster(world, shape)
        history, ledger = History(once=(b"",)), Ledger()
        with ReplicaWatch(cluster, history).watching():
            shown = world.run(_Scenario(cluster, history, ledger, applications).run(faults), within_s=900)
        return Report(
            shape=shape,
            transactions=len(ledger.stories),
            committed=ledger.committed_count,
            aborted=sum(story.is_committed is False for story in ledger.stories),
            overtaken=sum(
                story.is_committed is None and ledger.taken_over_at(story.incarnation) is not None
                for story in ledger.stories
            ),
            shown=shown,
            virtual_s=world.now,
            digest=world.trace.digest(),
        )


def draw_shape(seed: int) -> ClusterShape:
    """Always with ``fsync``: without it, what is decided may be lost with the power of the last replica in sync."""
    random = Random(f"{seed}/shape")
    return ClusterShape(nodes=random.choice([3, 3, 5]), lag_ms=random.choice([400, 2_000]), configs=_CONFIGS)


class _Scenario:
    def __init__(
        self, cluster: ReplicatedCluster, history: History, ledger: Ledger, applications: MakeApplications
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._history = history
        self._ledger = ledger
        self._applications = applications(cluster, history, ledger)
        self._readers: list[CommittedReader | OffsetReader] = [
            *(CommittedReader(cluster, history, ledger, f"reader-{rack}", f"rack-{rack}") for rack in (1, 4)),
            OffsetReader(cluster, history, ledger, "offsets"),
        ]

    async def run(self, faults: Sequence[str]) -> int:
        """How many records are shown in the end."""
        host, world = self._cluster.client_host, self._world
        await self._cluster.start()
        await host.run(Client(self._cluster, self._history, "creator").create_topic(PARTITION_COUNT))
        clients = [host.spawn(client.run()) for client in [*self._applications, *self._readers]]
        await TransactionFaults(self._cluster, world.random).run(world.random.randint(4, 8), faults)
        await self._until(self._is_well, _RECOVERED_WITHIN_S, "every replica is in sync")
        before = self._ledger.committed_count
        await self._until(
            lambda: self._ledger.committed_count > before + 5, _RECOVERED_WITHIN_S, "transactions are committed again"
        )
        for application in self._applications:
            application.end()
        for reader in self._readers:
            reader.is_over = True
        await self._until(lambda: all(client.done() for client in clients), _RECOVERED_WITHIN_S, "clients end")
        await self._until(self._is_stable, _ENDED_WITHIN_S, "every transaction has ended")
        await self._run_last_transactions()
        await self._until(self._is_stable, _ENDED_WITHIN_S, "every last transaction has ended")
        return await self._check_end()

    async def _run_last_transactions(self) -> None:
        host = self._cluster.client_host
        last = [host.spawn(application.run_last_transaction()) for application in self._applications]
        await self._until(lambda: all(one.done() for one in last), _RECOVERED_WITHIN_S, "every id can go on")

    async def _check_end(self) -> int:
        replicas = self._replicas(TopicName(TOPIC))
        assert replicas is not None
        ends = {int(replica.identity.partition): replica.high_watermark for replica in replicas}
        shown, offsets = await self._cluster.client_host.run(self._read_all(ends))
        check_outcomes(self._ledger, shown, offsets)
        for replica in replicas:
            self._check_replica(replica, shown[replica.identity.partition])
        return sum(len(values) for values in shown.values())

    async def _read_all(self, ends: Mapping[int, Offset]) -> tuple[dict[int, list[bytes]], dict[str, Offset | None]]:
        reader = CommittedReader(self._cluster, self._history, self._ledger, "last reader")
        groups = OffsetReader(self._cluster, self._history, self._ledger, "last offsets")
        return (
            {index: await reader.read_all(index, end) for index, end in ends.items()},
            {one.transactional_id: await groups.committed_offset(one.transactional_id) for one in self._applications},
        )

    def _check_replica(self, replica: Partition, shown: list[bytes]) -> None:
        """Whoever leads next shows the same."""
        log = replica.log
        kept = [bytes(record.value or b"") for record in committed_records(log, log.log_end_offset)]
        if kept != shown:
            report(Checker.ATOMICITY, f"{replica} shows {kept} in {log.directory}, where readers saw {shown}")

    # What is waited for.

    async def _until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        try:
            await self._world.until(condition, within_s=within_s)
        except AssertionError:
            report(Checker.LIVENESS, f"after {within_s} s it is not so that {what}")

    def _is_well(self) -> bool:
        topics = self._cluster.newest_image().topics.values()
        states = [state for topic in topics for state in topic.partitions.values()]
        return all(state.has_leader and len(state.isr) == len(state.replicas) == _REPLICAS for state in states)

    def _is_stable(self) -> bool:
        """On every replica: nothing is open, and nothing is on its way."""
        records, offsets = self._replicas(TopicName(TOPIC)), self._replicas(CONSUMER_OFFSETS)
        if records is None or offsets is None:
            return False
        ends = {(replica.identity, replica.log.log_end_offset) for replica in [*records, *offsets]}
        return len(ends) == (len(records) + len(offsets)) // _REPLICAS and all(
            replica.last_stable_offset == replica.high_watermark == replica.log.log_end_offset
            for replica in [*records, *offsets]
        )

    def _replicas(self, topic: TopicName) -> list[Partition] | None:
        """All of them, if all of them work. A topic that nobody needed has none."""
        image = self._cluster.newest_image()
        partitions = image.topics[topic].partitions if topic in image.topics else {}
        found = [
            self._cluster.replica(node_id, topic, index)
            for index, state in partitions.items()
            for node_id in state.replicas
        ]
        working = [replica for replica in found if replica is not None]
        return working if len(working) == len(found) else None
