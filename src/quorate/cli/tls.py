"""``quorate tls``: a small certificate authority in a folder, for trying things out and for tests."""

import datetime
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from quorate.kernel.errors import QuorateError

app = typer.Typer(
    help="A small certificate authority, for trying things out. docs/security.md says how to use a real one.",
    no_args_is_help=True,
)

CA_CERTIFICATE: Final = "ca.pem"
CA_KEY: Final = "ca.key"
_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644

NameOption = Annotated[str, typer.Option("--name", help="The name in the certificate (CN).")]


@app.command()
def ca(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where ca.pem and ca.key are written.")],
    name: NameOption = "Quorate test authority",
    days: Annotated[int | None, typer.Option(min=1, help="How long it is valid: ten years unless given.")] = None,
) -> None:
    """Make an authority: ca.pem, which everybody may have, and ca.key, which nobody else may read."""
    from quorate.security.certificates import DEFAULT_AUTHORITY_DAYS, make_authority

    _make_folder(out)
    _refuse_existing(out / CA_CERTIFICATE, out / CA_KEY)
    authority = make_authority(name, _now(), days or DEFAULT_AUTHORITY_DAYS)
    _write(out / CA_KEY, authority.key, _PRIVATE)
    _write(out / CA_CERTIFICATE, authority.certificate, _PUBLIC)
    print(f"wrote {out / CA_CERTIFICATE}: the authority, to be trusted (ssl.truststore.location)")
    print(f"wrote {out / CA_KEY}: its key; whoever has it can be anybody. Keep it off the nodes")


@app.command()
def issue(  # noqa: PLR0917 - typer calls it by name
    name: NameOption,
    authority: Annotated[
        Path, typer.Option("--ca", metavar="FOLDER", help="Of quorate tls ca: it has ca.pem and ca.key.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file for the key and its certificate, in PEM.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="A name or address that clients connect to; may be repeated. None for a client's own."
        ),
    ] = None,
    node_id: Annotated[int | None, typer.Option(min=0, help="The node whose certificate it is.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="How long it is valid: a year unless given.")] = None,
    key_password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Encrypt the key with what this file holds.")
    ] = None,
) -> None:
    """Make a key and a certificate, both in one file, as Kafka's ssl.keystore.location names it."""
    from quorate.kernel.ids import NodeId
    from quorate.security.certificates import DEFAULT_DAYS, Issued, Subject
    from quorate.security.certificates import issue as issue_certificate

    _refuse_existing(out)
    signer = Issued(certificate=_read(authority / CA_CERTIFICATE), key=_read(authority / CA_KEY))
    subject = Subject(name=name, hosts=tuple(host or ()), node_id=None if node_id is None else NodeId(node_id))
    password = None if key_password_file is None else _read_password(key_password_file)
    issued = issue_certificate(signer, subject, _now(), days or DEFAULT_DAYS, password)
    _write(out, issued.key_and_chain, _PRIVATE)
    print(f"wrote {out}: key and certificate of {name} (ssl.keystore.location)")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise QuorateError(f"the folder {folder} cannot be used: {error.strerror}") from None


def _refuse_existing(*paths: Path) -> None:
    """A key that is overwritten is lost, with everything that it has signed."""
    for path in paths:
        if os.path.lexists(path):
            raise QuorateError(f"{path} is there already, and is not overwritten: move it away, or name another")


def _write(path: Path, content: bytes, mode: int) -> None:
    """A new file, never one that was there, and never through a link."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise QuorateError(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise QuorateError(f"cannot read {path}: {error.strerror}; quorate tls ca makes an authority") from None


def _read_password(path: Path) -> str:
    try:
        password = path.read_text().rstrip("\r\n")
    except OSError as error:
        raise QuorateError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise QuorateError(f"cannot read {path}: it is not UTF-8 text") from None
    if not password:
        raise QuorateError(f"{path} holds no password")
    return password
