"""Certificates of nodes, and the authorities that issue them: in memory, and as the files of a cluster."""

import os
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from quorate.kernel.ids import NodeId
from quorate.security.certificates import Subject, issue, make_authority
from quorate.security.peer_handshake import ClusterSecrets
from quorate.security.peer_tls import PeerCredentials, PeerTls


class NodeAuthority:
    def __init__(self, name: str = "nodes") -> None:
        self._authority = make_authority(name, datetime.now(UTC))
        self.certificate = self._authority.certificate
        #: Its own certificate, as if it were a node's.
        self.key_and_chain = self._authority.key_and_chain

    def issue(self, node_id: int | None, began_days_ago: int = 0) -> bytes:
        """Key and certificate, for a day. None for a client's."""
        began = datetime.now(UTC) - timedelta(days=began_days_ago)
        subject = Subject(name="some node", node_id=None if node_id is None else NodeId(node_id))
        return issue(self._authority, subject, began, days=1).key_and_chain

    def credentials(self, node_id: int, *also_trusted: "NodeAuthority", secret: str | None = None) -> PeerCredentials:
        """Those of a node that trusts this authority and others."""
        authorities = b"".join(each.certificate for each in (self, *also_trusted))
        return PeerCredentials(
            secrets=None if secret is None else ClusterSecrets([secret]),
            tls=PeerTls(self.issue(node_id), authorities, NodeId(node_id)),
        )


class NodeFiles:
    """The certificate of each node, and the authorities of all, as files below a folder."""

    def __init__(self, folder: Path, authority: NodeAuthority, node_ids: Sequence[int]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority_file = folder / "peer-ca.pem"
        put(self.authority_file, authority.certificate)
        for node_id in node_ids:
            self.put_certificate(node_id, authority)

    def keys(self, node_id: int) -> dict[str, str]:
        """Of its node.toml."""
        return {
            "peer_certificate_file": str(self.certificate_file(node_id)),
            "peer_ca_file": str(self.authority_file),
        }

    def certificate_file(self, node_id: int) -> Path:
        return self._folder / f"node-{node_id}.pem"

    def put_certificate(self, node_id: int, authority: NodeAuthority) -> None:
        put(self.certificate_file(node_id), authority.issue(node_id))

    def put_authorities(self, *authorities: NodeAuthority) -> None:
        put(self.authority_file, b"".join(each.certificate for each in authorities))


def dialling_context(key_and_chain: bytes | None) -> ssl.SSLContext:
    """Of somebody who shows this, and looks at nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _show(context, key_and_chain)
    return context


def listening_context(key_and_chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _show(context, key_and_chain)
    return context


def _show(context: ssl.SSLContext, key_and_chain: bytes | None) -> None:
    if key_and_chain is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(key_and_chain)
            file.flush()
            context.load_cert_chain(file.name)


def put(path: Path, content: bytes) -> None:
    """In place of what is there, all at once, for its owner alone."""
    beside = path.with_name(f"{path.name}.new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    beside.replace(path)
