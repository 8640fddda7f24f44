"""Subjects of certificates, as Java's X500Principal writes them; what is expected here was printed by it."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from quorate.security.principals import subject_of

CN, O, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME  # noqa: E741
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*parts: x509.RelativeDistinguishedName) -> bytes:
    start = datetime.datetime(2026, 1, 1)
    name = x509.Name(parts)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .sign(KEY, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def rdn(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
    return x509.RelativeDistinguishedName(x509.NameAttribute(oid, value) for oid, value in attributes)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([rdn((O, "example")), rdn((CN, "alice"))], "CN=alice,O=example"),
        ([rdn((O, "x")), rdn((CN, "a=b#c<d>"))], r"CN=a\=b\#c\<d\>,O=x"),
        ([rdn((CN, '"q"\\;+,'))], r"CN=\"q\"\\\;\+\,"),
        ([rdn((O, " sp ")), rdn((CN, "#lead"))], r"CN=\#lead,O=\ sp\ "),
        ([rdn((CN, "tschüß 日本"))], "CN=tschüß 日本"),
        ([rdn((OU, "a"), (OU, "b"))], "OU=a+OU=b"),
        ([rdn((CN, "x")), rdn((NameOID.EMAIL_ADDRESS, "a@b.c"))], "1.2.840.113549.1.9.1=#16056140622e63,CN=x"),
        (
            [rdn((NameOID.DOMAIN_COMPONENT, "dc")), rdn((NameOID.STREET_ADDRESS, "s")), rdn((NameOID.USER_ID, "u"))],
            "UID=u,STREET=s,DC=dc",
        ),
        ([rdn((CN, "a\nb"))], "CN=a\nb"),
        ([], ""),
        ([rdn((O, "long " * 12)), rdn((CN, "y" * 60))], "CN=" + "y" * 60 + ",O=" + ("long " * 12).rstrip() + "\\ "),
    ],
)
def test_the_last_part_comes_first_and_what_is_special_is_escaped(
    parts: list[x509.RelativeDistinguishedName], expected: str
) -> None:
    assert subject_of(certificate(*parts)) == expected


@pytest.mark.parametrize("content", [b"", b"\x30", b"\x30\x05\x01", b"\x30\x03\x02\x01\x01", b"\x30\x80"])
def test_what_is_no_certificate_has_no_subject(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"certificate|values to unpack"):
        subject_of(content)


def test_a_cut_certificate_has_no_subject() -> None:
    whole = certificate(rdn((CN, "alice")))
    for length in range(0, len(whole), 7):
        with pytest.raises(ValueError, match=r"certificate|values to unpack"):
            subject_of(whole[:length])
