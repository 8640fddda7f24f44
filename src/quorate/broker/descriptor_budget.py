"""What the file descriptors of a process are for: the files of logs, clients, other nodes, and some to spare.

Nothing that a node must do depends on how many there are: logs share the files that may be open. What is left after
the files is how many connections of clients there can be at a time.
"""

import msgspec

from quorate.kernel.errors import QuorateError

#: From here on nobody needs to think of it. Apache Kafka's documentation asks for 100,000.
PLENTY = 4096
#: For the opening of files alone, whatever else has taken all others: votes, the metadata log, records.
SPARE = 32
#: For the connections from and to other nodes, for strangers at the peer port, and for what is open for a moment.
_FEWEST_FOR_PEERS = 48
_MOST_FOR_PEERS = 1024
_PEERS_PART = 8
_FEWEST_FILES_AND_CONNECTIONS = 32


class DescriptorBudget(msgspec.Struct, frozen=True, kw_only=True):
    #: All that the process may have.
    limit: int
    #: Files of logs that are open at a time.
    files: int
    #: Connections of clients.
    connections: int
    #: Connections from and to other nodes, and what is open for a moment.
    peers: int

    @property
    def is_low(self) -> bool:
        return self.limit < PLENTY

    @property
    def strangers(self) -> int:
        """Of the peers' connections: those that have not said yet who they are, or are of nobody that is known."""
        return self.peers // 4

    @property
    def advice(self) -> str:
        return (
            f"the limit of open files is {self.limit}, so the node keeps {self.files} files open and takes "
            f"{self.connections} connections of clients at a time; raise it (ulimit -n, LimitNOFILE= of systemd) to "
            f"{PLENTY} or more"
        )


def budget_of(limit: int, in_use: int) -> DescriptorBudget:
    """For a process that has ``in_use`` of them open before it begins. ``QuorateError`` where it cannot begin."""
    for_peers = min(max(_FEWEST_FOR_PEERS, limit // _PEERS_PART), _MOST_FOR_PEERS)
    left = limit - in_use - SPARE - for_peers
    if left < _FEWEST_FILES_AND_CONNECTIONS:
        needed = in_use + SPARE + _FEWEST_FOR_PEERS + _FEWEST_FILES_AND_CONNECTIONS
        raise QuorateError(
            f"the limit of open files is {limit} and a node needs {needed}: raise it (ulimit -n, LimitNOFILE= of "
            f"systemd) to {PLENTY} or more"
        )
    return DescriptorBudget(limit=limit, files=left // 2, connections=left - left // 2, peers=for_peers)
