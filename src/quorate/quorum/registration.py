"""This broker's standing in the cluster: registered at each start, kept alive by heartbeats, left in good order."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import BrokerEpoch, DirectoryId, NodeId
from quorate.kernel.tasks import TaskScope
from quorate.metadata.core.commands import RegisterBroker
from quorate.metadata.core.records import BrokerEndpoint
from quorate.quorum.core.leader_requests import BrokerHeartbeat, HeartbeatAnswer
from quorate.quorum.leader_calls import NoQuorum
from quorate.quorum.metadata_store import AskLeader, QuorumMetadataStore

logger = logging.getLogger(__name__)

#: Between two heartbeats of a broker that is leaving, and between looks at whether it is unfenced.
_SOON_S = 0.02
#: A quorum that cannot be asked for this long will not elect anybody either.
_LEAVING_TIMEOUT_MS = 700


class RegistrationConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    host: str
    port: int
    rack: str | None
    peer_address: str
    endpoints: tuple[BrokerEndpoint, ...]
    incarnation: UUID
    directory_id: DirectoryId
    heartbeat_interval_ms: int


class BrokerRegistration:
    def __init__(
        self,
        config: RegistrationConfig,
        store: QuorumMetadataStore,
        leader: AskLeader,
        *,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._store = store
        self._leader = leader
        self._loop = loop
        self._on_failure = on_failure
        #: Without heartbeats the broker is fenced for good, so that their failure is the node's.
        self._heartbeats = TaskScope(loop, on_failure)
        self._has_room = True
        #: Set when there is something to tell before the next heartbeat is due.
        self._news = asyncio.Event()
        self.broker_epoch = BrokerEpoch(-1)

    async def register(self) -> None:
        """Make this start of the broker known. Returns when the image shows it, and so all that was agreed before."""
        config = self._config
        command = RegisterBroker(
            node_id=config.node_id,
            host=config.host,
            port=config.port,
            rack=config.rack,
            incarnation=config.incarnation,
            directory_id=config.directory_id,
            peer_address=config.peer_address,
            endpoints=config.endpoints,
        )
        while True:
            try:
                answer = await self._store.submit_one(command)
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise QuorateError(f"the cluster refused node {config.node_id}: {error}") from None
                logger.info("waiting for the quorum node=%s", config.node_id)
                continue
            self.broker_epoch = answer.broker_epoch
            return

    async def begin(self) -> None:
        """Report for work: returns when the cluster counts on this broker."""
        while not self._store.image.is_live(self._config.node_id):
            answer = await self._beat()
            if answer is not None and (error := self._dismissal(answer)) is not None:
                raise error
            if not self._store.image.is_live(self._config.node_id):
                await asyncio.sleep(_SOON_S)
        self._heartbeats.spawn(self._keep_beating())

    def tell_room(self, *, has_room: bool) -> None:
        """Whether the disk takes records, as every heartbeat says from now on. A change is told at once."""
        if has_room != self._has_room:
            self._has_room = has_room
            self._news.set()

    async def leave(self, grace_ms: int) -> None:
        """Have others take over what this broker leads, for as long as that may take and there is anybody to do it."""
        self._heartbeats.cancel_all()
        deadline = self._loop.time() + grace_ms / 1000
        while (left_s := deadline - self._loop.time()) > 0 and self._has_successor():
            answer = await self._beat(wants_to_stop=True, timeout_ms=min(left_s * 1000, _LEAVING_TIMEOUT_MS))
            if answer is None or answer.may_stop or answer.is_superseded or answer.is_removed:
                return
            await asyncio.sleep(_SOON_S)

    def _has_successor(self) -> bool:
        """Where all brokers stop together, nobody is left to take over."""
        brokers = self._store.image.brokers.values()
        return any(broker.is_active and broker.node_id != self._config.node_id for broker in brokers)

    def stop(self) -> None:
        self._heartbeats.cancel_all()

    async def _keep_beating(self) -> None:
        interval_s = self._config.heartbeat_interval_ms / 1000
        while True:
            started = self._loop.time()
            answer = await self._beat()
            if answer is not None and (dismissal := self._dismissal(answer)) is not None:
                self._on_failure(dismissal)
                return
            await asyncio.sleep(_SOON_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s - (self._loop.time() - started)):
                    await self._news.wait()

    async def _beat(self, *, wants_to_stop: bool = False, timeout_ms: float = 2_000) -> HeartbeatAnswer | None:
        self._news.clear()
        beat = BrokerHeartbeat(
            node_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            metadata_version=self._store.image.version,
            wants_to_stop=wants_to_stop,
            has_room=self._has_room,
        )
        try:
            answer, _ = await self._leader.ask(beat, timeout_ms)
        except NoQuorum:
            return None
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def _dismissal(self, answer: HeartbeatAnswer) -> QuorateError | None:
        """Why this process has no place in the cluster any more, if so."""
        if answer.is_superseded:
            return QuorateError(f"another process has registered as node {self._config.node_id}")
        if answer.is_removed:
            return QuorateError(f"node {self._config.node_id} was removed from the cluster")
        return None
