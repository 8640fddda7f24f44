"""The small certificate authority: what it signs, and what it refuses."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.certificates import Issued, Subject, issue, make_authority, node_of_certificate

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
AUTHORITY = make_authority("authority", NOW, days=10)


def read(issued: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.certificate)


def test_an_authority_signs_certificates_and_no_authorities() -> None:
    certificate = read(AUTHORITY)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)

    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert certificate.subject == certificate.issuer
    assert certificate.not_valid_after_utc == NOW + datetime.timedelta(days=10)
    assert certificate.not_valid_before_utc < NOW


def test_a_nodes_certificate_names_its_hosts_and_its_id() -> None:
    subject = Subject(name="node-3", hosts=("kafka.example.com", "*.example.com", "10.0.0.1", "::1"), node_id=NodeId(3))
    certificate = read(issue(AUTHORITY, subject, NOW, days=2))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["kafka.example.com", "*.example.com"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["quorate:node:3"]
    certificate.verify_directly_issued_by(read(AUTHORITY))
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {each._name for each in usages} == {"serverAuth", "clientAuth"}


def test_a_clients_certificate_is_no_servers() -> None:
    certificate = read(issue(AUTHORITY, Subject(name="alice"), NOW))
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert {each._name for each in usages} == {"clientAuth"}
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_a_key_may_be_encrypted_and_is_never_shown() -> None:
    issued = issue(AUTHORITY, Subject(name="alice"), NOW, password="secret")

    with pytest.raises(TypeError):
        load_pem_private_key(issued.key, None)
    assert load_pem_private_key(issued.key, b"secret")
    assert "PRIVATE" not in repr(issued)
    assert issued.key_and_chain.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")


@pytest.mark.parametrize(
    ("subject", "days", "message"),
    [
        (Subject(name=""), 1, "1 to 64 characters"),
        (Subject(name="x" * 65), 1, "1 to 64 characters"),
        (Subject(name="a", hosts=("a b",)), 1, "'a b' is no host name or address"),
        (Subject(name="a", hosts=("",)), 1, "is no host name or address"),
        (Subject(name="a"), 0, "valid for 1 to"),
        (Subject(name="a"), 99_999, "valid for 1 to"),
    ],
)
def test_what_is_no_subject_is_refused(subject: Subject, days: int, message: str) -> None:
    with pytest.raises(QuorateError, match=message):
        issue(AUTHORITY, subject, NOW, days)


def test_only_an_authority_signs() -> None:
    client = issue(AUTHORITY, Subject(name="alice"), NOW)
    for false_authority, message in (
        (client, "not one of an authority"),
        (Issued(certificate=AUTHORITY.certificate, key=client.key), "does not belong"),
        (Issued(certificate=b"", key=b""), "no PEM"),
    ):
        with pytest.raises(QuorateError, match=message):
            issue(false_authority, Subject(name="bob"), NOW)


@pytest.mark.parametrize(
    ("names", "node"),
    [
        ([], None),
        ([("URI", "quorate:node:5"), ("DNS", "quorate:node:6")], 5),
        ([("URI", "quorate:node:5"), ("URI", "quorate:node:6")], None),
        ([("URI", "quorate:node:5"), ("URI", "https://example.com")], 5),
        ([("DNS", "quorate:node:5")], None),
        ([("URI", "quorate:node:-1")], None),
        ([("URI", "quorate:node:9999999999")], None),
        ([("URI", "xquorate:node:1")], None),
    ],
)
def test_a_certificate_names_one_node_or_none(names: list[tuple[str, str]], node: int | None) -> None:
    assert node_of_certificate({"subjectAltName": tuple(names)}) == node
    assert node_of_certificate({}) is None
