"""A production node as the process of a host: as ``broker.process`` starts one, with the host's environment."""

from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.node import NodeEnd, RunningNode
from quorate.broker.start import start_node
from quorate.transport.server import ListenerConfig, Server
from tests.simulation.world.host import SimulatedHost

PORT = 9092


async def serve(host: SimulatedHost, settings: str = "") -> RunningNode:
    """Start a node on the host, from any other; returns when it takes requests. ``settings`` are more lines of TOML."""
    text = f'node_id = 1\ndata_dir = "/data"\nlisten = "{host.address}:{PORT}"\n{settings}'
    return await host.run(start(host, parse_node_config(text)))


async def start(host: SimulatedHost, config: NodeConfig) -> RunningNode:
    node = await start_node(config, host.environment, NodeEnd(config.node_id))
    listener = ListenerConfig(host=config.listen.host, port=config.listen.port)
    await Server(host.loop, listener, node.dispatch.serve).start()
    return node
