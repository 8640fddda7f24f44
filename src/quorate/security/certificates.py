"""A small certificate authority: for trying things out, for tests, and for ``quorate up --secure``.

Keys are on the curve P-256. A node's certificate has its id in it, as a URI among its names: by that other nodes know
whom they talk to, whatever its address is.
"""

import datetime
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import MAX_NODE_ID, NodeId

DEFAULT_AUTHORITY_DAYS: Final = 3_650
DEFAULT_DAYS: Final = 365
_MAX_DAYS: Final = 36_500
_MAX_NAME_LENGTH: Final = 64
#: Clocks differ: a certificate is valid a little before it was made.
_BEFORE: Final = datetime.timedelta(minutes=5)
_NODE_URI: Final = re.compile(r"quorate:node:(\d{1,10})", re.ASCII)
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*\.?")


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its key, in PEM; shown without the key."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Issued({len(self.certificate)} bytes, ...)"

    @property
    def key_and_chain(self) -> bytes:
        """What Kafka's ``ssl.keystore.location`` of type PEM names."""
        return self.key + self.certificate


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a certificate is for."""

    name: str
    #: Names and addresses that clients connect to; none for a client's own certificate.
    hosts: tuple[str, ...] = ()
    node_id: NodeId | None = None


def make_authority(
    name: str, now: datetime.datetime, days: int = DEFAULT_AUTHORITY_DAYS, password: str | None = None
) -> Issued:
    """An authority with a new key. It can sign certificates of nodes and clients, and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
    )
    return _signed(builder, key, key, password)


def issue(
    authority: Issued, subject: Subject, now: datetime.datetime, days: int = DEFAULT_DAYS, password: str | None = None
) -> Issued:
    """A certificate with a new key. ``password`` encrypts that key; the authority's own is not encrypted."""
    signer, signing_key = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(subject.name), signer.subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(subject)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    names = _alternative_names(subject)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _signed(builder, key, signing_key, password)


def node_of_certificate(certificate: Mapping[str, Any]) -> NodeId | None:
    """The node that a verified certificate (``ssl.SSLSocket.getpeercert``) is of; None where it names none, or two."""
    names: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())
    nodes = {match[1] for kind, value in names if kind == "URI" and (match := _NODE_URI.fullmatch(value)) is not None}
    if len(nodes) != 1:
        return None
    node_id = int(nodes.pop())
    return NodeId(node_id) if node_id <= MAX_NODE_ID else None


class CertificateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What shows whether a certificate will do."""

    expires: datetime.datetime
    #: Whether the authority that was asked about has signed it.
    is_of_authority: bool


def examine_certificate(pem: bytes, authority: bytes) -> CertificateFacts:
    """The first certificate of a PEM text, which may hold its key too; ``authority`` is the authority's own."""
    try:
        certificate, signer = (x509.load_pem_x509_certificate(each) for each in (pem, authority))
    except ValueError:
        raise QuorateError("it is no certificate in PEM") from None
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return CertificateFacts(expires=certificate.not_valid_after_utc, is_of_authority=False)
    return CertificateFacts(expires=certificate.not_valid_after_utc, is_of_authority=True)


def check_authority(authority: Issued) -> None:
    """Raises ``QuorateError`` where it could not sign."""
    _load(authority)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    if not 1 <= days <= _MAX_DAYS:
        raise QuorateError(f"a certificate is valid for 1 to {_MAX_DAYS} days, not {days}")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    password: str | None,
) -> Issued:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return Issued(
        certificate=builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption),
    )


def _load(authority: Issued) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate)
        key = serialization.load_pem_private_key(authority.key, None)
    except (ValueError, TypeError):
        raise QuorateError("the authority's certificate or key is no PEM, or the key is encrypted") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise QuorateError("the authority's key does not belong to its certificate")
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = x509.BasicConstraints(ca=False, path_length=None)
    if not constraints.ca:
        raise QuorateError("the authority's certificate is not one of an authority")
    return certificate, key


def _name(text: str) -> x509.Name:
    if not text.strip() or len(text) > _MAX_NAME_LENGTH:
        raise QuorateError(f"the name in a certificate has 1 to {_MAX_NAME_LENGTH} characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _purposes(subject: Subject) -> list[x509.ObjectIdentifier]:
    """A node is a server to clients, and a client of other nodes."""
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if subject.hosts or subject.node_id is not None:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return purposes


def _alternative_names(subject: Subject) -> list[x509.GeneralName]:
    names = [_host(host) for host in dict.fromkeys(subject.hosts)]
    if subject.node_id is not None:
        names.append(x509.UniformResourceIdentifier(f"quorate:node:{subject.node_id}"))
    return names


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if _HOST.fullmatch(host) is None:
        raise QuorateError(f"{host!r} is no host name or address")
    return x509.DNSName(host)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
