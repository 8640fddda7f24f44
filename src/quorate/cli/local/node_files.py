"""The files that set a node up: ``node.toml``, which ``broker.config`` reads, and who may read them.

Files are for their owner alone. What an operator has opened to others stays so: a file that is there keeps its mode.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from quorate.kernel.ids import NodeId

_OWNER_ONLY = 0o600
_OWNER_ONLY_FOLDER = 0o700


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


def make_private_folder(path: Path) -> None:
    """Folders above it are made as any other."""
    path.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """In one step: readers see the old file or the new one."""
    mode = path.stat().st_mode & 0o777 if path.exists() else _OWNER_ONLY
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY), "w") as file:
        file.write(text)
    draft.chmod(mode)
    draft.replace(path)
