"""The certificate that both systems show where a run is over TLS, and what the load checks it with."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from quorate.security.certificates import Subject, issue, make_authority


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    #: Key and chain in PEM, which both systems read.
    key_store: Path
    trust: ssl.SSLContext


def make_certificates(folder: Path) -> Certificates:
    now = datetime.now(UTC)
    authority = make_authority("benchmark", now, days=1)
    node = issue(authority, Subject(name="node", hosts=("127.0.0.1",)), now, days=1)
    key_store = folder / "node.pem"
    key_store.write_bytes(node.key_and_chain)
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    return Certificates(key_store=key_store, trust=trust)
