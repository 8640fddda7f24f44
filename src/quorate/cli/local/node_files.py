"""The files that set a node up: ``node.toml``, which ``broker.config`` reads, and who may read them.

Files are for their owner alone. What an operator has opened to others stays so: a file that is there keeps its mode.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quorate.kernel.ids import NodeId

if TYPE_CHECKING:  # Every command loads this module, and few make a cluster.
    from quorate.broker.first_user import FirstUser

_OWNER_ONLY = 0o600
_OWNER_ONLY_FOLDER = 0o700


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    data_dir: str
    #: None where the configs have ``listeners``.
    listen: str | None
    peer_listen: str
    cluster_id: str
    #: None where whoever reaches the peer port is believed.
    cluster_secret_file: str | None
    #: Of the connections between nodes, where they are encrypted.
    peer_certificate_file: str | None = None
    peer_ca_file: str | None = None
    voters: Mapping[NodeId, str]
    first_user: "FirstUser | None" = None
    rack: str | None = None
    #: Where its log goes; standard error where there is none.
    log_file: str | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)

    def text(self) -> str:
        top = {
            "node_id": str(self.node_id),
            "data_dir": _quoted(self.data_dir),
            "listen": _quoted(self.listen),
            "peer_listen": _quoted(self.peer_listen),
            "cluster_id": _quoted(self.cluster_id),
            "cluster_secret_file": _quoted(self.cluster_secret_file),
            "peers_unauthenticated": None if self.cluster_secret_file or self.peer_certificate_file else "true",
            "peer_certificate_file": _quoted(self.peer_certificate_file),
            "peer_ca_file": _quoted(self.peer_ca_file),
            "rack": _quoted(self.rack),
        }
        voters = {str(node_id): _quoted(address) for node_id, address in self.voters.items()}
        configs = {_quoted(name) or "": _quoted(value) for name, value in self.configs.items()}
        tables = {
            "first_user": _first_user_keys(self.first_user),
            "voters": voters,
            "log": {"file": _quoted(self.log_file)},
            "configs": configs,
        }
        return _lines(top) + "".join(
            f"\n[{name}]\n{lines}"
            for name, keys in tables.items()
            if (lines := _lines(keys)) or name in ("voters", "configs")
        )


def _lines(keys: Mapping[str, str | None]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in keys.items() if value is not None)


def _first_user_keys(user: "FirstUser | None") -> dict[str, str | None]:
    if user is None:
        return {}
    return {"name": _quoted(user.name), "password_file": _quoted(user.password_file)}


def _quoted(text: str | None) -> str | None:
    """A string of TOML: JSON's, but for a character that TOML wants escaped and JSON does not."""
    return None if text is None else json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def secret_file_line(path: str) -> str:
    return f"cluster_secret_file = {_quoted(path)}"


def make_private_folder(path: Path) -> None:
    """Folders above it are made as any other."""
    path.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """In one step: readers see the old file or the new one."""
    mode = path.stat().st_mode & 0o777 if path.exists() else _OWNER_ONLY
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    draft.chmod(mode)
    draft.replace(path)
