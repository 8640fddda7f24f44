"""A simulated node with an authorizer, and a user who has the rights that a test gives."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TypeVar

from quorate.broker.request_context import Origin
from quorate.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.schema import Request, Response
from quorate.security.acls import AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.listeners import SecurityProtocol
from quorate.security.principals import user
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "true",
}
R = TypeVar("R", bound=Response)


def origin(name: str) -> Origin:
    return Origin(host="10.0.0.1", principal=user(name), protocol=SecurityProtocol.SASL_SSL)


class World:
    """A node with two topics, ``open`` and ``secret``, and a user ``bob`` with the rights that he is given."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node

    async def allow(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        acl = AclCreation(
            resource_type=resource_type,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:bob",
            host="*",
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )
        created = await self.call_as("admin", CreateAclsRequest(creations=[acl]), 3, CreateAclsResponse)
        assert [result.error_code for result in created.results] == [0]

    async def call(self, request: Request, version: int, response_type: type[R]) -> R:
        return await self.call_as("bob", request, version, response_type)

    async def call_as(self, name: str, request: Request, version: int, response_type: type[R]) -> R:
        self.node.log_in(origin(name))
        return await self.node.call(request, version, response_type)


def play(scenario: Callable[[World], Awaitable[None]], configs: Mapping[str, str] = CONFIGS) -> None:
    async def run() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start(configs)
        world = World(node)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("open", "secret")]
        await world.call_as("admin", CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
        await scenario(world)
        await node.stop()

    asyncio.run(run())
