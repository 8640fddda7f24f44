"""A node that runs: its parts, and the order in which they stop. ``broker.start`` makes one.

Everything that is not deterministic is handed in through ``Environment``: the loop, the clock, the disk, the threads
and the random source. Handlers get the node's ``Services``.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random

import msgspec

from quorate.broker.config import NodeConfig
from quorate.broker.descriptors import DescriptorWatch
from quorate.broker.dispatch import Dispatch
from quorate.broker.housekeeping import Housekeeping
from quorate.broker.peer_credentials import CredentialWatch, OsOperatorFiles
from quorate.broker.services import Services
from quorate.coordination.groups.coordinator import GroupCoordinator
from quorate.coordination.transactions.coordinator import TransactionCoordinator
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.kernel.ports import Clock, Disk, OperatorFiles
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.quorum import Quorum
from quorate.quorum.registration import BrokerRegistration
from quorate.replication.disk_room import DiskWatch
from quorate.replication.group_commit import GroupCommit
from quorate.replication.integrity.log_integrity import LogIntegrity
from quorate.replication.integrity.scrub import Scrub
from quorate.replication.partitions import Partitions
from quorate.replication.replication import NodeReplication
from quorate.transport.peers.bus import PeerBus

logger = logging.getLogger(__name__)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs of the world around it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    #: Runs what blocks: syncs, compaction.
    executor: Executor
    #: The same for the metadata log alone, which must not wait behind the syncs of partitions.
    quorum_executor: Executor
    random: Random
    #: Secrets and certificates that the settings name.
    operator_files: OperatorFiles = OsOperatorFiles()
    #: Those of the process; None where they are not this node's to divide.
    descriptors: DescriptorWatch | None = None
    #: Shown the node's part in the quorum before that starts, where somebody wants to watch it from its first step on.
    on_quorum: Callable[[Quorum], None] | None = None


class NodeEnd:
    """When a node is to end, and why: it was asked to, or cannot go on. What runs the node waits for it."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.is_due = asyncio.Event()
        self.failure: Exception | None = None

    def ask_for(self) -> None:
        self.is_due.set()

    def fail(self, error: Exception) -> None:
        """The first failure counts; what fails after it fails because of it."""
        if self.failure is None:
            self.failure = error
            logger.critical("node failed node=%s error=%s", self._node_id, error, exc_info=error)
            self.is_due.set()

    def check(self) -> None:
        if self.failure is not None:
            raise QuorateError(f"node {self._node_id} cannot go on: {self.failure}")


class RunningNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    config: NodeConfig
    loop: asyncio.AbstractEventLoop
    end: NodeEnd
    peers: PeerBus
    credentials: CredentialWatch
    quorum: Quorum
    registration: BrokerRegistration
    disk_watch: DiskWatch
    group_commit: GroupCommit
    integrity: LogIntegrity
    partitions: Partitions
    replication: NodeReplication
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    housekeeping: Housekeeping
    scrub: Scrub
    services: Services
    dispatch: Dispatch

    @property
    def metadata(self) -> QuorumMetadataStore:
        return self.quorum.metadata

    async def leave(self) -> None:
        """Before a stop: let others take over what this node leads, so that their clients hardly notice."""
        if len(self.metadata.image.live_brokers) > 1:
            await self.registration.leave(self.config.stop_grace_ms)
            await self.quorum.hand_over(self.config.stop_grace_ms)

    def release_waiting_requests(self) -> None:
        """Before a stop: answer the requests that would otherwise wait for others, parked joins and long polls."""
        self.transactions.stop()
        self.groups.stop()
        for partition in self.partitions:
            partition.release_watchers()

    async def stop(self) -> None:
        """Leave everything on the disk complete, so that the next start has nothing to check."""
        self.registration.stop()
        self.services.address_quotas.stop()
        await self.credentials.stop()
        self.replication.stop()
        await self.disk_watch.stop()
        await self.scrub.stop()
        await self.integrity.stop()
        await self.housekeeping.stop()
        self.transactions.stop()
        self.groups.stop()
        await self.group_commit.wait_until_idle()
        await self.partitions.close()
        await self.quorum.stop()
