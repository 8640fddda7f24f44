"""``quorate tls``: files that OpenSSL takes, with modes that keep keys to their owner, and nothing overwritten."""

import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from quorate.cli.tls import app
from quorate.kernel.errors import QuorateError


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    assert run("ca", "--out", tmp_path / "ca").exit_code == 0
    return tmp_path / "ca"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_what_the_authority_issues_is_valid(authority: Path, tmp_path: Path) -> None:
    node = tmp_path / "node.pem"
    run("issue", "--ca", authority, "--name", "node 7", "--host", "127.0.0.1", "--host", "a.example", "--node-id", "7",
        "--out", node)  # fmt: skip

    assert openssl("verify", "-CAfile", authority / "ca.pem", node).strip().endswith("OK")
    shown = openssl("x509", "-in", node, "-noout", "-text")
    for name in ("CN = node 7", "IP Address:127.0.0.1", "DNS:a.example", "URI:quorate:node:7"):
        assert name in shown or name.replace(" = ", "=") in shown
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(node)


def test_keys_are_for_their_owner_alone(authority: Path, tmp_path: Path) -> None:
    run("issue", "--ca", authority, "--name", "client", "--out", tmp_path / "client.pem")

    assert mode(authority) == 0o700
    assert mode(authority / "ca.key") == 0o600
    assert mode(tmp_path / "client.pem") == 0o600


def test_nothing_is_overwritten(authority: Path, tmp_path: Path) -> None:
    before = (authority / "ca.key").read_bytes()
    with pytest.raises(QuorateError, match=r"ca\.pem is there already, and is not overwritten"):
        run("ca", "--out", authority)
    (authority / "ca.pem").rename(tmp_path / "away.pem")
    with pytest.raises(QuorateError, match=r"ca\.key is there already"):
        run("ca", "--out", authority)
    assert (authority / "ca.key").read_bytes() == before

    (tmp_path / "link.pem").symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(QuorateError, match=r"link\.pem is there already"):
        run("issue", "--ca", authority, "--name", "client", "--out", tmp_path / "link.pem")
    assert not (tmp_path / "elsewhere.pem").exists()


def test_the_key_can_have_a_password(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("not to be guessed\n")
    out = tmp_path / "client.pem"
    run("issue", "--ca", authority, "--name", "client", "--out", out, "--key-password-file", tmp_path / "password")

    assert b"ENCRYPTED PRIVATE KEY" in out.read_bytes()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(out, password="not to be guessed")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ca", "{}/none", "--name", "a"), "cannot read .*none/ca.pem: No such file or directory; quorate tls ca"),
        (("--ca", "{}/ca", "--name", "a", "--host", "not a host"), "'not a host' is no host name or address"),
        (("--ca", "{}/ca", "--name", " "), "the name in a certificate has 1 to 64 characters"),
        (("--ca", "{}/ca", "--name", "a", "--days", "99999"), "a certificate is valid for 1 to 36500 days"),
        (("--ca", "{}/ca", "--name", "a", "--key-password-file", "/dev/null"), "/dev/null holds no password"),
    ],
)
def test_a_mistake_is_one_sentence(authority: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    given = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    with pytest.raises(QuorateError, match=sentence):
        run("issue", *given, "--out", tmp_path / "out.pem")
    assert not (tmp_path / "out.pem").exists()
