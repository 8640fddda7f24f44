"""TLS contexts out of settings: handshakes in memory, mistakes in one sentence, and when files are read again."""

import datetime
import ssl
from pathlib import Path

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.certificates import (
    Issued,
    Subject,
    issue,
    make_authority,
    node_of_certificate,
)
from quorate.security.listeners import ListenerSettings
from quorate.security.principals import subject_of
from quorate.security.tls import (
    FileStamp,
    TlsReload,
    client_context,
    read_material,
    server_context,
    stamp_files,
)
from quorate.security.tls_settings import (
    ClientAuth,
    TlsSettings,
    TlsVersion,
    openssl_name,
    parse_tls_settings,
)

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = make_authority("test authority", NOW)
OTHER_AUTHORITY = make_authority("another", NOW)
NODE = issue(AUTHORITY, Subject(name="node", hosts=("localhost", "127.0.0.1"), node_id=NodeId(7)), NOW)
CLIENT = issue(AUTHORITY, Subject(name="alice"), NOW)
STRANGER = issue(OTHER_AUTHORITY, Subject(name="alice", hosts=("localhost",)), NOW)


def text(issued: Issued) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": issued.certificate.decode(),
        "ssl.keystore.key": issued.key.decode(),
    }


TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.certificate.decode()}


def parse(settings: dict[str, str], *, is_server: bool = True) -> TlsSettings:
    return parse_tls_settings(ListenerSettings(settings, "SSL"), is_server=is_server)


def context(settings: dict[str, str]) -> ssl.SSLContext:
    parsed = parse(settings)
    return server_context(parsed, read_material(parsed))


class Handshake:
    """Two ends in memory."""

    def __init__(
        self, server: dict[str, str], client: dict[str, str], host: str = "localhost", *, verify_hostname: bool = True
    ) -> None:
        parsed = parse(client, is_server=False)
        connecting = client_context(parsed, read_material(parsed), verify_hostname=verify_hostname)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context(server).wrap_bio(there, back, server_side=True)
        self.client = connecting.wrap_bio(back, there, server_hostname=host)
        for _ in range(4):
            for end in (self.client, self.server):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_a_client_with_a_certificate(auth: str) -> None:
    done = Handshake({**text(NODE), **TRUST, "ssl.client.auth": auth}, {**text(CLIENT), **TRUST})

    shown = done.server.getpeercert(binary_form=True)
    assert (shown is None) is (auth == "none")
    if shown is not None:
        assert subject_of(shown) == "CN=alice"
    assert done.client.version() == "TLSv1.3"
    node = done.client.getpeercert()
    assert node is not None
    assert node_of_certificate(node) == 7


@pytest.mark.parametrize(("auth", "is_refused"), [("none", False), ("requested", False), ("required", True)])
def test_a_client_without_one(auth: str, is_refused: bool) -> None:
    settings = {**text(NODE), **TRUST, "ssl.client.auth": auth}
    if is_refused:
        with pytest.raises(ssl.SSLError):
            Handshake(settings, TRUST)
    else:
        assert Handshake(settings, TRUST).server.getpeercert(binary_form=True) is None


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_client_with_one_of_somebody_else(auth: str) -> None:
    with pytest.raises(ssl.SSLError):
        Handshake({**text(NODE), **TRUST, "ssl.client.auth": auth}, {**text(STRANGER), **TRUST})


def test_a_client_believes_no_other_authority_and_no_other_host() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Handshake(text(STRANGER), TRUST)
    with pytest.raises(ssl.SSLCertVerificationError):
        Handshake(text(NODE), TRUST, host="example.com")
    Handshake(text(NODE), TRUST, host="127.0.0.1")
    Handshake(text(NODE), TRUST, host="example.com", verify_hostname=False)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_versions_and_ciphers(version: str) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    server = {**text(NODE), "ssl.enabled.protocols": version, "ssl.cipher.suites": suite}
    done = Handshake(server, TRUST)

    assert done.client.version() == version
    cipher = done.client.cipher()
    assert cipher is not None
    if version == "TLSv1.2":
        assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    with pytest.raises(ssl.SSLError):
        Handshake(server, {**TRUST, "ssl.enabled.protocols": ({"TLSv1.2", "TLSv1.3"} - {version}).pop()})


def test_keys_and_certificates_in_files(tmp_path: Path) -> None:
    encrypted = issue(AUTHORITY, Subject(name="node", hosts=("localhost",)), NOW, password="secret")
    (tmp_path / "node.pem").write_bytes(encrypted.key_and_chain)
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.certificate)
    settings = {
        "ssl.keystore.location": f"{tmp_path}/node.pem",
        "ssl.key.password": "secret",
        "ssl.truststore.location": f"{tmp_path}/ca.pem",
        "ssl.client.auth": "required",
    }

    Handshake(settings, {**text(CLIENT), **TRUST})

    assert parse(settings).paths == (f"{tmp_path}/node.pem", f"{tmp_path}/ca.pem")
    assert "secret" not in repr(parse(settings))
    assert "BEGIN" not in repr(read_material(parse(settings)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs ssl.keystore.location"),
        ({"ssl.keystore.location": "a.jks"}, "only PEM is read, not JKS"),
        ({"ssl.keystore.location": "a.pem", "ssl.keystore.type": "PKCS12"}, "only PEM is read, not PKCS12"),
        ({"ssl.keystore.location": "a.pem", "ssl.keystore.password": "secret"}, "a key's password is ssl.key.password"),
        ({"ssl.keystore.location": "a.pem", "ssl.keystore.key": "secret"}, "needs ssl.keystore.certificate.chain"),
        ({**text(NODE), "ssl.keystore.location": "a.pem"}, "not both"),
        ({"ssl.keystore.certificate.chain": "secret"}, "is no PEM text"),
        ({**text(NODE), "ssl.client.auth": "always"}, "'always' is not one of none, requested, required"),
        ({**text(NODE), "ssl.client.auth": "required"}, "= required needs ssl.truststore.location"),
        ({**text(NODE), "ssl.enabled.protocols": "TLSv1.1"}, "'TLSv1.1' is not one of TLSv1.2, TLSv1.3"),
        ({**text(NODE), "ssl.principal.mapping.rules": "RULE"}, "is neither DEFAULT nor RULE"),
        ({**text(NODE), "ssl.cipher.suites": "MADE-UP"}, "OpenSSL knows none of MADE-UP"),
        ({"ssl.keystore.location": "/nowhere/a.pem"}, "/nowhere/a.pem cannot be read: No such file"),
        (
            {**text(NODE), "ssl.keystore.key": CLIENT.key.decode()},
            "the private key does not belong to the first certificate",
        ),
        ({"ssl.keystore.certificate.chain": NODE.certificate.decode()}, "has not the private key"),
        ({**text(NODE), **TRUST, "ssl.truststore.certificates": NODE.key.decode()}, "has no certificates in PEM"),
    ],
)
def test_a_mistake_is_one_sentence_without_a_secret(settings: dict[str, str], message: str) -> None:
    with pytest.raises(QuorateError, match=message) as raised:
        context(settings)

    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("password", [None, "wrong"])
def test_an_encrypted_key_needs_its_password(password: str | None) -> None:
    encrypted = issue(AUTHORITY, Subject(name="node"), NOW, password="right")
    settings = text(encrypted) | ({} if password is None else {"ssl.key.password": password})
    with pytest.raises(QuorateError, match=r"ssl\.key\.password"):
        context(settings)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_two_names(suite: str, name: str) -> None:
    assert openssl_name(suite) == name


def test_defaults() -> None:
    settings = parse(text(NODE))

    assert settings.client_auth is ClientAuth.NONE
    assert settings.versions == {TlsVersion.TLS_1_2, TlsVersion.TLS_1_3}
    assert settings.paths == ()


def stamp(number: int) -> tuple[FileStamp | None, ...]:
    return (FileStamp(1, number, 10),)


def test_files_are_read_again_once_they_have_settled() -> None:
    reload = TlsReload(stamp(1), b"old")

    assert not reload.is_due(stamp(1))
    assert not reload.is_due(stamp(2))
    assert not reload.is_due(stamp(3))
    assert reload.is_due(stamp(3))
    # Whatever came of it, not again until they change again.
    assert not reload.is_due(stamp(3))
    assert reload.is_new(b"new")
    reload.in_force(b"new")
    assert not reload.is_new(b"new")
    assert not reload.is_due((None,))
    assert reload.is_due((None,))


def test_a_file_that_was_only_touched_is_nothing_new() -> None:
    reload = TlsReload(stamp(1), b"same")
    reload.is_due(stamp(2))

    assert reload.is_due(stamp(2))
    assert not reload.is_new(b"same")


def test_a_replaced_file_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    assert stamp_files([str(path)]) == (None,)
    path.write_bytes(NODE.key_and_chain)
    before = stamp_files([str(path)])
    replacement = tmp_path / "b.pem"
    replacement.write_bytes(CLIENT.key_and_chain)
    replacement.replace(path)

    assert stamp_files([str(path)]) != before
    settings = parse({"ssl.keystore.location": str(path)})
    first = read_material(settings).digest
    path.write_bytes(NODE.key_and_chain)
    assert read_material(settings).digest != first
