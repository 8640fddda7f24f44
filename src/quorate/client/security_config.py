"""How a client shows who it is, and whom it believes: one flat set of texts, checked once.

It pickles, secrets with it, and is never shown with them. What it names by a path is read where the client runs, again
for each login or as soon as it has changed; what it has as text travels.
"""

from collections.abc import Iterator
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.security.listeners import ListenerSettings, SecurityProtocol
from quorate.security.tls_settings import PemSource, TlsSettings, parse_tls_settings

HIDDEN: Final = "'***'"
SECRETS: Final = frozenset({"password", "private_key", "key_password", "oauth_client_secret"})


class SaslMechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    #: OAUTHBEARER with a token that is signed with AWS credentials.
    AWS_MSK_IAM = "AWS_MSK_IAM"

    @property
    def wire_name(self) -> str:
        return SaslMechanism.OAUTHBEARER.value if self is SaslMechanism.AWS_MSK_IAM else self.value

    @property
    def has_password(self) -> bool:
        return self not in (SaslMechanism.OAUTHBEARER, SaslMechanism.AWS_MSK_IAM)


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: str | None = None
    #: Whether the two are a delegation token's id and HMAC (SCRAM alone).
    delegation_token: bool = False
    #: Of OAUTHBEARER: a file with an access token, or the endpoint that gives one for the client's id and secret.
    oauth_token_location: str | None = None
    oauth_token_endpoint: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = None
    oauth_scope: str | None = None
    #: Certificates that the endpoint's is checked against; None for the system's.
    oauth_ca_location: str | None = None
    #: Whether id and secret are encoded as RFC 6749 asks: some providers insist on it, and some on the contrary.
    oauth_header_urlencode: bool = False
    #: ``name=value`` with commas: what goes to the broker with the token.
    oauth_extensions: str | None = None
    #: Of AWS_MSK_IAM; what is not named is found as AWS's own tools find it.
    aws_region: str | None = None
    aws_profile: str | None = None
    aws_role_arn: str | None = None
    aws_role_session_name: str | None = None
    #: Certificates that the brokers' are checked against, as a file or as PEM text; neither for the system's.
    ca_location: str | None = None
    ca_certificates: str | None = None
    #: This client's own certificate and key, where the brokers ask for one. One file may hold both.
    certificate_location: str | None = None
    certificate_chain: str | None = None
    key_location: str | None = None
    private_key: str | None = None
    key_password: str | None = None
    #: Whether the broker's certificate must name the host that was connected to.
    verify_hostname: bool = True
    #: Of ``TLSv1.2`` and ``TLSv1.3``, with a comma; both unless given.
    tls_versions: str | None = None
    #: In Java's or OpenSSL's names, with commas. They are about TLS 1.2.
    cipher_suites: str | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot be meant: the key, and what is wrong with it."""
        yield from self._problems_of_sasl()
        yield from self._problems_of_tls()

    def _problems_of_sasl(self) -> Iterator[tuple[str, str]]:
        mechanism = self.sasl_mechanism
        if not self.protocol.uses_sasl:
            if mechanism is not None:
                yield "sasl_mechanism", f"means nothing with protocol {self.protocol}"
        elif mechanism is None:
            yield "sasl_mechanism", f"is needed with protocol {self.protocol}"
        elif mechanism.has_password:
            for key in ("username", "password"):
                if getattr(self, key) is None:
                    yield key, f"is needed with protocol {self.protocol} and {mechanism}"
        if self.delegation_token and mechanism is SaslMechanism.PLAIN:
            yield "delegation_token", "means nothing with PLAIN: name one of the SCRAM mechanisms"
        if mechanism is SaslMechanism.OAUTHBEARER:
            yield from self._problems_of_oauth()
        for prefix, owner in (("oauth_", SaslMechanism.OAUTHBEARER), ("aws_", SaslMechanism.AWS_MSK_IAM)):
            for key in self.__struct_fields__:
                if key.startswith(prefix) and getattr(self, key) and mechanism is not owner:
                    yield key, f"means nothing without sasl_mechanism {owner}"

    def _problems_of_oauth(self) -> Iterator[tuple[str, str]]:
        if (self.oauth_token_location is None) == (self.oauth_token_endpoint is None):
            yield "oauth_token_location", "or oauth_token_endpoint is needed with OAUTHBEARER, one of them"
        if self.oauth_token_endpoint is not None:
            for key in ("oauth_client_id", "oauth_client_secret"):
                if getattr(self, key) is None:
                    yield key, "is needed with oauth_token_endpoint"
            if not _is_safe_endpoint(self.oauth_token_endpoint):
                yield "oauth_token_endpoint", f"{self.oauth_token_endpoint!r} is not of the form https://host/path"
        try:
            self.sasl_extensions()
        except QuorateError as error:
            yield "oauth_extensions", str(error)

    def sasl_extensions(self) -> dict[str, str]:
        extensions: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in (self.oauth_extensions or "").split(","))):
            name, separator, value = part.partition("=")
            if not separator or not name:
                raise QuorateError("is not of the form name=value,name=value")
            extensions[name] = value
        return extensions

    def _problems_of_tls(self) -> Iterator[tuple[str, str]]:
        if not self.protocol.uses_tls:
            for key in _ONLY_WITH_TLS:
                if getattr(self, key) is not None:
                    yield key, f"means nothing with protocol {self.protocol}"
            return
        for location, text in _EITHER:
            if getattr(self, location) is not None and getattr(self, text) is not None:
                yield text, f"and {location} are both given: name one of them"
        if self.key_location is not None and self.certificate_location is None:
            yield "key_location", "needs certificate_location"
        if self.private_key is not None and self.certificate_chain is None:
            yield "private_key", "needs certificate_chain"
        try:
            self.tls_settings()
        except QuorateError as error:
            yield "tls_versions", f"and cipher_suites cannot be used: {error}"

    def tls_settings(self) -> TlsSettings:
        agreed = {"ssl.enabled.protocols": self.tls_versions or "", "ssl.cipher.suites": self.cipher_suites or ""}
        return msgspec.structs.replace(
            parse_tls_settings(ListenerSettings(agreed, ""), is_server=False),
            chain=self._pem("certificate_location", "certificate_chain"),
            key=self._pem("key_location", "private_key"),
            key_password=self.key_password,
            trust=self._pem("ca_location", "ca_certificates"),
        )

    def _pem(self, location: str, text: str) -> PemSource | None:
        if (path := getattr(self, location)) is not None:
            return PemSource(setting=location, path=path)
        content = getattr(self, text)
        return None if content is None else PemSource(setting=text, text=content)

    def __repr__(self) -> str:
        shown = (
            f"{name}={HIDDEN if name in SECRETS and value is not None else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        )
        return f"SecurityConfig({', '.join(shown)})"


def _is_safe_endpoint(url: str) -> bool:
    """A client's secret goes there: only where nobody listens."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_EITHER: Final = (
    ("ca_location", "ca_certificates"),
    ("certificate_location", "certificate_chain"),
    ("key_location", "private_key"),
)
_ONLY_WITH_TLS: Final = (*(key for pair in _EITHER for key in pair), "key_password", "tls_versions", "cipher_suites")
