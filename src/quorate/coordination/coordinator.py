"""What the coordinators of groups and of transactions have in common."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import cast

import msgspec

from quorate.kernel.ids import NodeId
from quorate.kernel.ports import Clock
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.metadata.store import MetadataStore
from quorate.replication.partitions import Partitions


class CoordinatorEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator uses of its node."""

    node_id: NodeId
    metadata: MetadataStore
    partitions: Partitions
    loop: asyncio.AbstractEventLoop
    clock: Clock
    executor: Executor
    #: The broker's value of a configuration.
    config: Callable[[str], ConfigValue]

    def int_config(self, name: str) -> int:
        return cast(int, self.config(name))
