"""``node.toml``, written by the commands that set a node up. ``broker.config`` reads it."""

import json
from collections.abc import Mapping

import msgspec

from quorate.kernel.ids import NodeId


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    data_dir: str
    listen: str
    peer_listen: str
    cluster_id: str
    voters: Mapping[NodeId, str]
    rack: str | None = None
    #: Where its log goes; standard error where there is none.
    log_file: str | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)

    def text(self) -> str:
        log = "" if self.log_file is None else f"\n[log]\nfile = {json.dumps(self.log_file)}\n"
        rack = "" if self.rack is None else f"rack = {json.dumps(self.rack)}\n"
        return (
            f"node_id = {self.node_id}\n"
            f"data_dir = {json.dumps(self.data_dir)}\n"
            f"listen = {json.dumps(self.listen)}\n"
            f"peer_listen = {json.dumps(self.peer_listen)}\n"
            f"cluster_id = {json.dumps(self.cluster_id)}\n"
            + rack
            + "\n[voters]\n"
            + "".join(f"{node_id} = {json.dumps(address)}\n" for node_id, address in self.voters.items())
            + log
            + "\n[configs]\n"
            + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.configs.items())
        )
