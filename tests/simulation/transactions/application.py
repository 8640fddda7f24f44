"""Whoever uses one transactional id: instance after instance, some of which die, and some of which do not know it."""

import asyncio
from collections.abc import Sequence

from quorate.kernel.ids import Offset
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History
from tests.simulation.transactions.coordinated import GaveUp
from tests.simulation.transactions.ledger import Ledger
from tests.simulation.transactions.producer import FIRST, SECOND, Fenced, Flow, MustAbort, TransactionalProducer

PARTITION_COUNT = 3
#: More than any run has time for.
_FOR_EVER = 1_000_000


class Application:
    def __init__(
        self,
        cluster: ReplicatedCluster,
        history: History,
        ledger: Ledger,
        transactional_id: str,
        flows: Sequence[Flow],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._ledger = ledger
        self._flows = flows
        self.transactional_id = transactional_id
        self._producers: list[TransactionalProducer] = []
        self._running: list[asyncio.Task[None]] = []
        self._transactions = 0
        self._is_over = False

    async def run(self) -> None:
        """Until it is over; then nothing of it is left."""
        while not self._is_over:
            await self._run_instance()
        await asyncio.gather(*self._running)

    def end(self) -> None:
        """Let every instance stop where it is. What it has begun nobody ends."""
        self._is_over = True
        for producer in self._producers:
            producer.is_over = True

    async def run_last_transaction(self) -> None:
        """A last instance finds nothing in its way, unless it is its own request for the id that comes late."""
        while True:
            try:
                return await self._try_last_transaction()
            except (Fenced, MustAbort):
                continue

    async def _try_last_transaction(self) -> None:
        producer = self._instance()
        await producer.init()
        story = producer.begin()
        await producer.write(story, range(PARTITION_COUNT))
        await producer.commit_offset(story, self._next_offset())
        await producer.commit(story)

    async def _run_instance(self) -> None:
        producer = self._instance()
        random = producer.random
        if random.random() < 0.4:
            # A zombie: its successor comes while it goes on.
            self._running.append(self._cluster.client_host.spawn(self._live(producer, _FOR_EVER)))
            await self._cluster.world.sleep(random.random() * 4)
            return
        await self._live(producer, random.randint(1, 6))
        if random.random() < 0.3:
            await self._cluster.world.sleep(random.random() * producer.incarnation.timeout_ms / 1000)

    def _instance(self, flow: Flow | None = None) -> TransactionalProducer:
        flow = flow or self._cluster.world.random.choice(self._flows)
        producer = TransactionalProducer(self._cluster, self._history, self._ledger, self.transactional_id, flow=flow)
        self._producers.append(producer)
        return producer

    async def _live(self, producer: TransactionalProducer, transactions: int) -> None:
        try:
            await producer.init()
            for _ in range(transactions):
                if producer.random.random() < 0.1:
                    asyncio.get_running_loop().call_later(producer.random.random(), producer.die)
                await self._run_transaction(producer)
        except (Fenced, GaveUp):
            producer.die()

    async def _run_transaction(self, producer: TransactionalProducer) -> None:
        random = producer.random
        story = producer.begin()
        try:
            for _ in range(random.randint(1, 2)):
                await producer.write(story, random.sample(range(PARTITION_COUNT), random.randint(1, PARTITION_COUNT)))
            if random.random() < 0.4:
                await producer.commit_offset(story, self._next_offset())
            if random.random() < 0.3:  # Thinks, sometimes for longer than the coordinator has patience.
                await self._cluster.world.sleep(random.random() ** 3 * producer.incarnation.timeout_ms / 500)
            if random.random() < 0.7:
                await producer.commit(story)
            else:
                await producer.abort(story)
        except MustAbort:
            await producer.abort(story)
        if random.random() < 0.5:  # Otherwise it is faster than the markers.
            await self._cluster.world.sleep(random.random() ** 2 * 0.3)

    def _next_offset(self) -> Offset:
        self._transactions += 1
        return Offset(self._transactions)


class LateCommits(Application):
    """A producer of the second version is replaced by one of the first, has written nothing since, and commits.

    To a coordinator it looks as if it repeated itself: it names the epoch before the one of the last transaction, which
    has ended in the same way.
    """

    async def _run_instance(self) -> None:
        replaced, successor = self._instance(SECOND), self._instance(FIRST)
        try:
            for producer in (replaced, successor):
                await producer.init()
                story = producer.begin()
                await producer.write(story, range(PARTITION_COUNT))
                await producer.commit(story)
            await replaced.commit(replaced.begin())
        except (Fenced, GaveUp, MustAbort):
            for producer in (replaced, successor):
                producer.die()
