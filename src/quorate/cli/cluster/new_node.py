"""What the file of a new node says: configs and a listener like those of the others, and what it shows to them.

The listener has its own address, and the node its own certificate. What the nodes show to each other are copies, on its
machine, of what the files of the others name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId

if TYPE_CHECKING:
    from quorate.client.admin.configs import DescribedConfig
    from quorate.client.kafka_client import KafkaClient

CertificateOption = Annotated[
    Path | None,
    typer.Option(help="For a cluster whose listeners have TLS: the node's own key and certificates, in one PEM file."),
]
#: Said by each node for itself.
_OWN_CONFIGS = frozenset({"node.id", "broker.id", "log.dirs", "listeners", "advertised.listeners", "broker.rack"})
_PROTOCOL_MAP = "listener.security.protocol.map"
_KEY_STORE = "ssl.keystore.location"


def configs_like(
    client: "KafkaClient", other: NodeId, listen: str, certificate_file: Path | None
) -> tuple[dict[str, str], list[str]]:
    """What another node's file says about the cluster as a whole, such as the default replication factor, and the names
    of what it keeps to itself. ``listeners`` is among them where an address alone is not enough."""
    described = _static_configs(client, other)
    configs = {
        name: entry.value
        for name, entry in described.items()
        if entry.value is not None and name not in _OWN_CONFIGS and not name.endswith(_KEY_STORE)
    }
    secrets = sorted(name for name, entry in described.items() if entry.is_sensitive and entry.value is None)
    return configs | _listener(described, listen, certificate_file), secrets


def _static_configs(client: "KafkaClient", node_id: NodeId) -> "Mapping[str, DescribedConfig]":
    from quorate.client.admin.configs import ConfigResource
    from quorate.protocol.codes import ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.BROKER, str(node_id))
    return {
        name: entry
        for name, entry in client.configs.describe([resource])[resource].items()
        if entry.source is ConfigSource.STATIC_BROKER
    }


def _listener(described: "Mapping[str, DescribedConfig]", listen: str, certificate_file: Path | None) -> dict[str, str]:
    """Clients find a node by the listener that they came by: it has the name and the protocol that it has elsewhere."""
    from quorate.metadata.core.records import DEFAULT_LISTENER
    from quorate.security.listeners import SecurityProtocol, parse_listeners

    def value(name: str) -> str:
        return (described[name].value or "") if name in described else ""

    listeners = parse_listeners({"listeners": value("listeners"), _PROTOCOL_MAP: value(_PROTOCOL_MAP)}).all
    if len(listeners) > 1:
        names = ", ".join(listener.name for listener in listeners)
        raise QuorateError(
            f"the nodes of this cluster have the listeners {names}, which this command does not set up: write a "
            "node.toml like theirs, and start it with quorate serve"
        )
    (listener,) = listeners
    if certificate_file is not None and not listener.protocol.uses_tls:
        raise QuorateError(
            f"the listeners of this cluster have no TLS ({listener.protocol}): leave --certificate-file out"
        )
    if listener.name == DEFAULT_LISTENER and listener.protocol is SecurityProtocol.PLAINTEXT:
        return {}
    configs = {"listeners": f"{listener.name}://{listen}"}
    if not listener.protocol.uses_tls:
        return configs
    if certificate_file is None:
        raise QuorateError(
            f"the listeners of this cluster have TLS ({listener.protocol}): name the node's own key and certificates, "
            "one PEM file, with --certificate-file"
        )
    _check_readable(certificate_file)
    return configs | {_KEY_STORE: str(certificate_file.absolute())}


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise QuorateError(f"--certificate-file: {path} cannot be read: {error.strerror}") from None


class PeerFiles(msgspec.Struct, frozen=True, kw_only=True):
    secret: str | None = None
    certificate: str | None = None
    authorities: str | None = None


def check_peer_files(
    node_id: NodeId, secret: Path | None, certificate: Path | None, authorities: Path | None, *, is_without: bool
) -> PeerFiles:
    """Raises ``QuorateError`` where the node could not start with them."""
    from quorate.broker.peer_credentials import check_certificate_files, read_secret_file

    if is_without:
        if certificate is not None or authorities is not None:
            raise QuorateError("name either --peer-certificate-file or --peers-unauthenticated, not both")
        return PeerFiles()
    if (certificate is None) is not (authorities is None):
        raise QuorateError("--peer-certificate-file and --peer-ca-file go together: name both or neither")
    if secret is None and certificate is None:
        # The cluster does not tell its secret to those who ask as its clients do.
        raise QuorateError(
            "a node shows the others that it knows the cluster's secret: copy the file that cluster_secret_file "
            "names in the node.toml of another node to this machine, and name it with --cluster-secret-file; "
            "where nodes have certificates, name --peer-certificate-file and --peer-ca-file; "
            "a cluster that has none of both takes --peers-unauthenticated"
        )
    if secret is not None:
        read_secret_file(str(secret.absolute()))
    if certificate is not None and authorities is not None:
        check_certificate_files(str(certificate.absolute()), str(authorities.absolute()), node_id)
    return PeerFiles(secret=_absolute(secret), certificate=_absolute(certificate), authorities=_absolute(authorities))


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
