"""What makes a local cluster a secured one: TLS and logins for its clients, an authorizer, and a first user above it.

All of it is in the cluster's folder, set up with it and kept from then on.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from quorate.broker.config import NodeConfig
from quorate.broker.first_user import FirstUser, read_password
from quorate.broker.peer_credentials import OsOperatorFiles
from quorate.broker.secured_folder import ADMIN, CLIENT_MECHANISM, ClientAccess, SecuredFolder, listener_configs
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.listeners import SecurityProtocol

PROTOCOL: Final = SecurityProtocol.SASL_SSL
#: What certificates are for. Nodes listen on the first of them.
_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
_LISTENERS: Final = "listeners"
_KEY_STORE: Final = "ssl.keystore.location"
_COMMENT: Final = "How clients connect to this cluster as its first user. Made with the cluster, and kept."


class ClusterSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """Shown without the password."""

    files: SecuredFolder
    #: None where nobody knows any more who it was.
    first_user: FirstUser | None
    #: Of a cluster that is made; None for the one that is there already, or a new one.
    wanted_password: str | None = None
    is_new: bool

    def __repr__(self) -> str:
        return f"ClusterSecurity({self.first_user})"

    def configs(self, node_id: NodeId, listen: Address, others: Mapping[str, str] | None) -> dict[str, str]:
        """A new node's; those of the others count for what is not its own."""
        made = listener_configs(PROTOCOL, listen, self.files, node_id, self.first_user.name if self.first_user else "")
        return made if others is None else {name: made[name] for name in (_LISTENERS, _KEY_STORE)}

    def write(self, node_ids: Iterable[NodeId], bootstrap_servers: str, *, has_new_nodes: bool) -> Sequence[str]:
        """Returns what an operator should know."""
        told = list(self.files.make_certificates(node_ids, _HOSTS))
        path = self.files.client_properties
        if path.exists() and not self.is_new:
            if has_new_nodes:
                self.files.update_bootstrap_servers(bootstrap_servers)
            return told
        password = self.files.settle_password(self.wanted_password) if self.is_new else self.files.find_password()
        if password is None or self.first_user is None:
            return [*told, f"{path} is missing, and without {self.files.password_file.name} cannot be made anew"]
        access = ClientAccess(
            bootstrap_servers=bootstrap_servers,
            protocol=PROTOCOL,
            username=self.first_user.name,
            password=password,
            ca_file=self.files.ca_file,
        )
        self.files.write_client_properties(access, _COMMENT)
        return told

    def description(self) -> dict[str, str]:
        """For ``cluster.json``."""
        return {
            "security_protocol": str(PROTOCOL),
            "sasl_mechanism": CLIENT_MECHANISM,
            "client_properties": str(self.files.client_properties),
            "ca_file": str(self.files.ca_file),
        }

    def instructions(self) -> Iterable[str]:
        """For people, without the password."""
        name = "the first user" if self.first_user is None else self.first_user.name
        yield f"secured: {PROTOCOL}, {CLIENT_MECHANISM}; {name} may do everything, others what ACLs allow"
        yield f"  quorate and Apache Kafka's tools: --command-config {self.files.client_properties}"
        yield (
            f"  other clients: security.protocol={PROTOCOL} sasl.mechanism={CLIENT_MECHANISM} sasl.username={name} "
            f"ssl.ca.location={self.files.ca_file}, and the password in {self.files.password_file}"
        )


def plan_security(
    folder: Path,
    existing: Sequence[NodeConfig],
    *,
    is_wanted: bool,
    first_user: FirstUser | None,
    configs: Mapping[str, str],
) -> ClusterSecurity | None:
    """That of the cluster in the folder, or of a new one. Nothing is written; what cannot be is refused."""
    files = SecuredFolder(folder)
    if not existing:
        return _new_security(files, first_user, configs) if is_wanted else None
    managed = [each for each in existing if each.configs.get(_KEY_STORE) == str(files.certificate_of(each.node_id))]
    if is_wanted and not managed:
        raise QuorateError(
            f"{folder} holds a cluster that --secure did not set up, and it is not changed: start it without --secure, "
            "name another folder with --data for a secured cluster, or secure its nodes as docs/security.md says"
        )
    if not managed:
        return None
    return ClusterSecurity(
        files=files,
        first_user=next((each.first_user for each in existing if each.first_user is not None), None),
        is_new=False,
    )


def _new_security(files: SecuredFolder, first_user: FirstUser | None, configs: Mapping[str, str]) -> ClusterSecurity:
    for name in (_LISTENERS, _KEY_STORE):
        if name in configs:
            raise QuorateError(f"--secure sets {name} for each node: leave --config {name} out")
    name, password = ADMIN, files.find_password()
    if first_user is not None:
        name, password = first_user.name, read_password(first_user.password_file, OsOperatorFiles())
    if ";" in name:
        raise QuorateError(f"--first-user: the name of a super user has no semicolon in it, as {name!r} has")
    return ClusterSecurity(
        files=files,
        first_user=FirstUser(name=name, password_file=str(files.password_file)),
        wanted_password=password,
        is_new=True,
    )
