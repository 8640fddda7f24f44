"""The cluster's secret is replaced while all goes on: the new one beside the old, then before it, then alone."""

from tests.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.world.host import SECRET_FILE

#: A node looks at the file every second, and believes what it has seen twice.
_KNOWN_WITHIN_S = 4.0


class SecretRotation:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._random = cluster.world.random

    async def run(self) -> None:
        hosts = [member.host for member in self._cluster.members]
        old = hosts[0].operator_files.contents[SECRET_FILE]
        new = self._random.randbytes(32).hex().encode()
        for content in (old + b"\n" + new, new + b"\n" + old, new):
            if content == new:
                self._cluster.former_secret = old.decode()
            for host in self._random.sample(hosts, len(hosts)):
                host.operator_files.contents[SECRET_FILE] = content
                await self._cluster.world.sleep(self._random.random())
            await self._cluster.world.sleep(_KNOWN_WITHIN_S)
