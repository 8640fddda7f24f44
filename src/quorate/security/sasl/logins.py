"""The client's side of any mechanism, by its name: for the commands, the backup's workers and links between nodes."""

from collections.abc import Mapping

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.security.jaas import JaasEntry
from quorate.security.sasl.bearer import BearerLogin
from quorate.security.sasl.mechanisms import MECHANISMS, OAUTHBEARER, PLAIN
from quorate.security.sasl.outcomes import SaslLogin
from quorate.security.sasl.plain import PlainLogin
from quorate.security.sasl.scram import ScramLogin
from quorate.security.scram_credentials import scram_mechanism


class LoginCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """Shown without its secrets."""

    username: str | None = None
    password: str | None = None
    #: Whether the two are a delegation token's id and HMAC.
    by_token: bool = False
    #: Of OAUTHBEARER.
    access_token: str | None = None
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"LoginCredentials({self.username!r}, ...)"


def credentials_of(entry: JaasEntry) -> LoginCredentials:
    """Of a client's ``sasl.jaas.config``. An access token is not part of it: it is fetched for each login."""
    return LoginCredentials(
        username=entry.options.get("username"),
        password=entry.options.get("password"),
        by_token=entry.options.get("tokenauth", "false").lower() == "true",
        extensions={
            key.removeprefix("extension_"): value
            for key, value in entry.options.items()
            if key.startswith("extension_")
        },
    )


def new_login(mechanism: str, credentials: LoginCredentials, nonce: str) -> SaslLogin:
    """``nonce`` is printable text of at least 18 random bytes, another one for each login."""
    if mechanism == OAUTHBEARER:
        if credentials.access_token is None:
            raise QuorateError("OAUTHBEARER needs an access token")
        return BearerLogin(credentials.access_token, credentials.extensions)
    scram = scram_mechanism(mechanism)
    if mechanism != PLAIN and scram is None:
        raise QuorateError(f"sasl.mechanism: {mechanism!r} is not one of {', '.join(MECHANISMS)}")
    if credentials.username is None or credentials.password is None:
        raise QuorateError(f"{mechanism} needs a username and a password")
    if scram is None:
        return PlainLogin(credentials.username, credentials.password)
    return ScramLogin(scram, credentials.username, credentials.password, nonce, by_token=credentials.by_token)
