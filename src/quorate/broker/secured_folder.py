"""What a cluster that secures itself keeps in one folder: an authority, its nodes' certificates, the password of its
first user, and the file by which clients connect.

``quorate up --secure`` and ``ClusterInProcess`` make them. They are made once and kept, but for certificates that end
soon. All of them are for their owner alone.
"""

import datetime
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

import msgspec

from quorate.broker.first_user import read_password
from quorate.broker.peer_credentials import OsOperatorFiles
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.security_configs import STANDARD_AUTHORIZER
from quorate.security.certificates import (
    CertificateFacts,
    Issued,
    Subject,
    check_authority,
    examine_certificate,
    issue,
    make_authority,
)
from quorate.security.listeners import SecurityProtocol
from quorate.security.properties import login_module_value, write_properties

#: What the first user is called where nobody has said.
ADMIN: Final = "admin"
CLIENT_MECHANISM: Final = "SCRAM-SHA-512"
_AUTHORITY_NAME: Final = "Quorate cluster authority"
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BOOTSTRAP_LINE: Final = re.compile(rb"^bootstrap\.servers=.*$", re.MULTILINE)
#: Of random bytes in a password that is made here.
_PASSWORD_BYTES: Final = 24
#: Certificates live for a year, and are made anew this long before their end.
RENEWED_BEFORE: Final = datetime.timedelta(days=30)


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class SecuredFolder:
    def __init__(self, folder: Path, now: Callable[[], datetime.datetime] = _utc_now) -> None:
        self._folder = folder
        self._now = now
        self.ca_file = folder / "ca.pem"
        self.ca_key_file = folder / "ca.key"
        self.password_file = folder / "admin.password"
        self.client_properties = folder / "client.properties"
        #: Of the first user, for listeners that ask clients for one.
        self.client_certificate = folder / "client.pem"

    def certificate_of(self, node_id: NodeId) -> Path:
        """What clients are shown."""
        return self._folder / f"node-{node_id}.pem"

    def peer_certificate_of(self, node_id: NodeId) -> Path:
        """What other nodes are shown: whatever an operator shows to clients instead, they know it by this one."""
        return self._folder / f"peer-{node_id}.pem"

    def _subjects(self, node_ids: Iterable[NodeId], hosts: tuple[str, ...] = ()) -> Iterator[tuple[Path, Subject]]:
        for node_id in node_ids:
            yield self.certificate_of(node_id), Subject(name=f"node-{node_id}", hosts=hosts)
            yield self.peer_certificate_of(node_id), Subject(name=f"peer-{node_id}", node_id=node_id)

    def check_certificates(self, node_ids: Iterable[NodeId]) -> None:
        """Raises ``QuorateError`` where ``make_certificates`` could not do its part."""
        authority = self._find_authority()
        for path, _ in self._subjects(node_ids):
            self._is_due(path, authority)

    def make_certificates(self, node_ids: Iterable[NodeId], hosts: tuple[str, ...]) -> Iterator[str]:
        """Those that are missing or end soon, and the authority; tells what an operator should know."""
        authority = self._settle_authority()
        expires = examine_certificate(authority.certificate, authority.certificate).expires
        if self._ends_soon(expires):
            yield f"the authority in {self.ca_file} {self._end(expires)}: docs/security.md says how to replace it"
        for path, subject in self._subjects(node_ids, hosts):
            is_there = path.exists()
            if self._is_due(path, authority):
                self._issue(path, subject, authority)
                if is_there:
                    yield f"there is a new certificate in {path}, as the old one ends soon or has ended"
            else:
                yield from self._told_of(path, authority)

    def make_client_certificate(self, name: str) -> None:
        authority = self._settle_authority()
        if self._is_due(self.client_certificate, authority):
            self._issue(self.client_certificate, Subject(name=name), authority)

    def settle_password(self, wanted: str | None = None) -> str:
        """The wanted one, the one that is there, or a new one that nobody can guess."""
        found = self.find_password()
        password = wanted or found or token_urlsafe(_PASSWORD_BYTES)
        if password != found:
            _write_private(self.password_file, f"{password}\n".encode())
        return password

    def write_client_properties(self, access: "ClientAccess", comment: str) -> None:
        _write_private(self.client_properties, write_properties(access.properties(), comment).encode())

    def update_bootstrap_servers(self, bootstrap_servers: str) -> None:
        """In a file that others may have changed by hand, and opened to somebody."""
        path = self.client_properties
        mode = stat.S_IMODE(path.stat().st_mode)
        line = f"bootstrap.servers={bootstrap_servers}".encode()
        _write_private(path, _BOOTSTRAP_LINE.sub(lambda _: line, path.read_bytes()))
        path.chmod(mode)

    def find_password(self) -> str | None:
        """That of the first user, as it was at the beginning."""
        if not os.path.lexists(self.password_file):
            return None
        return read_password(str(self.password_file), OsOperatorFiles())

    def _settle_authority(self) -> Issued:
        found = self._find_authority()
        if found is not None:
            return found
        made = make_authority(_AUTHORITY_NAME, self._now())
        # The key first: a certificate without its key could sign nothing, and would have to be trusted all the same.
        _write_private(self.ca_key_file, made.key)
        _write_private(self.ca_file, made.certificate)
        return made

    def _find_authority(self) -> Issued | None:
        """Without its key where that was put away: then it signs nothing."""
        certificate, key = _read(self.ca_file), _read(self.ca_key_file)
        if certificate is None:
            return None
        found = Issued(certificate=certificate, key=key or b"")
        try:
            if key is not None:
                check_authority(found)
            examine_certificate(certificate, certificate)
        except QuorateError as error:
            raise QuorateError(f"{self.ca_file} and {self.ca_key_file.name}: {error}") from None
        return found

    def _is_due(self, path: Path, authority: Issued | None) -> bool:
        """Whether to make a certificate. What another authority has signed is left to those who have put it there."""
        content = _read(path)
        if content is None:
            if authority is not None and not authority.key:
                raise QuorateError(f"{self.ca_key_file} is missing, which has to sign {path.name}: put it back")
            return True
        if authority is None:
            raise QuorateError(f"{self.ca_file} is missing, which has signed {path.name}: put it back")
        facts = self._examine(path, content, authority)
        return bool(authority.key) and facts.is_of_authority and self._ends_soon(facts.expires)

    def _told_of(self, path: Path, authority: Issued) -> Iterator[str]:
        facts = self._examine(path, path.read_bytes(), authority)
        if self._ends_soon(facts.expires):
            advice = f"put {self.ca_key_file} back" if facts.is_of_authority else "put another one in its place"
            yield f"the certificate in {path} {self._end(facts.expires)}: {advice}"

    def _examine(self, path: Path, content: bytes, authority: Issued) -> CertificateFacts:
        try:
            return examine_certificate(content, authority.certificate)
        except QuorateError as error:
            raise QuorateError(f"{path}: {error}; remove it to have it made anew") from None

    def _ends_soon(self, expires: datetime.datetime) -> bool:
        return expires - self._now() < RENEWED_BEFORE

    def _end(self, expires: datetime.datetime) -> str:
        return f"{'ends' if expires > self._now() else 'has ended'} on {expires:%Y-%m-%d}"

    def _issue(self, path: Path, subject: Subject, authority: Issued) -> None:
        _write_private(path, issue(authority, subject, self._now()).key_and_chain)


def listener_configs(
    protocol: SecurityProtocol, listen: Address, files: SecuredFolder, node_id: NodeId, user: str
) -> dict[str, str]:
    """A node's broker configs: one listener, and where clients log in the authorizer, with the first user above it.

    Without logins a certificate shows who a client is, if it has one.
    """
    configs = {"listeners": f"{protocol}://{listen}", "super.users": f"User:{user}"}
    if protocol.uses_tls:
        configs["ssl.keystore.location"] = str(files.certificate_of(node_id))
    if protocol.uses_sasl:
        configs["sasl.enabled.mechanisms"] = "SCRAM-SHA-512,SCRAM-SHA-256"
        configs["authorizer.class.name"] = STANDARD_AUTHORIZER
    elif protocol.uses_tls:
        configs["ssl.client.auth"] = "requested"
        configs["ssl.truststore.location"] = str(files.ca_file)
        configs["ssl.principal.mapping.rules"] = "RULE:^CN=(.*)$/$1/,DEFAULT"
    return configs


class ClientAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to connect; shown without the password."""

    bootstrap_servers: str
    protocol: SecurityProtocol
    username: str
    password: str
    ca_file: Path
    #: Shown to listeners that ask for one.
    certificate_file: Path | None = None

    def __repr__(self) -> str:
        return f"ClientAccess({self.protocol} {self.bootstrap_servers}, {self.username!r})"

    def properties(self) -> dict[str, str]:
        """Of Apache Kafka's own clients and tools, and of ``--command-config``."""
        properties = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": str(self.protocol)}
        if self.protocol.uses_sasl:
            name, password = _option(self.username), _option(self.password)
            properties["sasl.mechanism"] = CLIENT_MECHANISM
            properties["sasl.jaas.config"] = f"{_LOGIN_MODULE} required username={name} password={password};"
        if self.protocol.uses_tls:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
            if self.certificate_file is not None:
                properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate_file)}
        return properties


def _option(text: str) -> str:
    """In quotes, and so that no reference to a variable or a file begins in it."""
    return login_module_value(text, is_bare=True).replace("${", "$\\{")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise QuorateError(f"{path} cannot be read: {error.strerror}") from None


def _write_private(path: Path, content: bytes) -> None:
    """In one step: readers see the old file or the new one. Whatever it was open to before, it is not."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
