"""What handlers use of their node: its parts, complete from the first request on, and nothing of how they are made."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import cast
from uuid import UUID

import msgspec

from quorate.broker.access_control import AccessControl
from quorate.broker.address_rates import AddressQuotas, HostLookUp
from quorate.broker.client_limits import ClientQuotas
from quorate.broker.fetch.sessions import FetchSessions
from quorate.broker.produce.record_opening import RecordOpening
from quorate.broker.producer_ids import ProducerIds
from quorate.coordination.groups.coordinator import GroupCoordinator
from quorate.coordination.transactions.coordinator import TransactionCoordinator
from quorate.coordination.transactions.verification import ProducerTurns, TransactionVerifier
from quorate.kernel.conditions import Conditions
from quorate.kernel.ids import NO_NODE, NodeId
from quorate.kernel.ports import Clock, Disk
from quorate.kernel.turns import Turns
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.metadata.core.effective_configs import BrokerView, broker_value
from quorate.metadata.store import MetadataStore
from quorate.quorum.quorum import Quorum
from quorate.replication.partitions import Partitions
from quorate.security.delegation_token import TokenKeys


class Services(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    #: For what computes for long and must not do so on the loop.
    executor: Executor
    turns: Turns
    node_id: NodeId
    data_dir: str
    #: What the node's file says, by which configs are resolved.
    view: BrokerView
    #: What the node reports about itself.
    conditions: Conditions
    metadata: MetadataStore
    quorum: Quorum
    partitions: Partitions
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    producer_turns: ProducerTurns
    producer_ids: ProducerIds
    record_opening: RecordOpening
    fetch_sessions: FetchSessions
    quotas: ClientQuotas
    hosts: HostLookUp
    address_quotas: AddressQuotas
    #: Who may do what; None where everybody may do everything.
    access_control: AccessControl | None
    #: The secrets of delegation tokens; None where there are no tokens.
    token_keys: TokenKeys | None
    new_uuid: Callable[[], UUID]
    #: To be held while a long answer is made of a short request, which is made of thousands of objects at first.
    describing: asyncio.Semaphore
    #: As the configs were when the node started.
    fetch_max_bytes: int
    auto_creates_topics: bool

    @property
    def has_peers(self) -> bool:
        """Whether there are other nodes that could lead what this one is asked about."""
        return len(self.metadata.image.brokers) > 1

    @property
    def controller_id(self) -> NodeId:
        """Whom clients take for the controller. Any node would do: all of them pass commands on."""
        leader = self.quorum.leader
        return NO_NODE if leader is None else leader.node_id

    def broker_config(self, name: str) -> ConfigValue:
        return broker_value(self.metadata.image, self.view, name)

    def int_config(self, name: str) -> int:
        return cast(int, self.broker_config(name))
