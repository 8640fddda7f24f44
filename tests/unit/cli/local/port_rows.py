"""Ports for a local cluster: as many in a row as it has nodes, and those for peers above them."""

from quorate.cli.local.layout import PEER_PORTS_ABOVE
from quorate.cli.local.ports import is_free
from quorate.kernel.address import Address
from quorate.testing.cluster_in_process import free_ports


def first_of_free_ports(nodes: int = 4) -> int:
    while True:
        [port] = free_ports(1)
        wanted = [port + above + index for above in (0, PEER_PORTS_ABOVE) for index in range(nodes)]
        if all(is_free(Address("127.0.0.1", each)) for each in wanted):
            return port
