"""The mechanisms that there are, and a new exchange of one by its name."""

from collections.abc import Callable
from typing import Final

import msgspec

from quorate.security.sasl.bearer import BearerServer, Verify
from quorate.security.sasl.outcomes import Mechanism
from quorate.security.sasl.plain import PlainPasswords, PlainServer, StoredPasswords
from quorate.security.sasl.scram import ScramServer, ScramUsers
from quorate.security.scram_credentials import scram_mechanism

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
#: Kerberos (GSSAPI) is not among them.
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)


class CredentialSources(msgspec.Struct, frozen=True, kw_only=True):
    """Against what a listener checks whoever connects; those of mechanisms that it does not enable are None."""

    passwords: PlainPasswords | StoredPasswords | None = None
    scram_users: ScramUsers | None = None
    verify_token: Verify | None = None
    #: Of at least 18 random bytes, as printable text without commas; another one at each call.
    new_nonce: Callable[[], str]


def new_mechanism(name: str, sources: CredentialSources) -> Mechanism:
    """The server's side of a new exchange. The mechanism is one that the listener enables."""
    if name == PLAIN and sources.passwords is not None:
        return PlainServer(sources.passwords)
    if name == OAUTHBEARER and sources.verify_token is not None:
        return BearerServer(sources.verify_token)
    mechanism = scram_mechanism(name)
    if mechanism is None or sources.scram_users is None:
        raise AssertionError(f"{name} is enabled without anything to check it against")
    return ScramServer(mechanism, sources.scram_users, sources.new_nonce())
