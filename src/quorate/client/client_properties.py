"""A client's settings in Kafka's own names, as ``client.properties`` has them, and what they are here.

A key of security that is not known is refused, as what it was meant to protect would not be. Keys that Java alone has a
use for, and those of producers and consumers, are passed over: one file serves all clients.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.errors import QuorateError
from quorate.security.jaas import JaasEntry, parse_jaas
from quorate.security.listeners import ListenerSettings, SecurityProtocol
from quorate.security.sasl.logins import credentials_of
from quorate.security.tls_settings import PemSource, TlsVersion, parse_tls_settings

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
_JAAS: Final = "sasl.jaas.config"
_OAUTH: Final = "sasl.oauthbearer."
_MSK_LOGIN: Final = "software.amazon.msk.auth.iam."
_PREFIXES: Final = ("security.", "ssl.", "sasl.")
_KNOWN: Final = frozenset({
    "security.protocol",
    *(f"ssl.{key}" for key in ("protocol", "enabled.protocols", "cipher.suites", "endpoint.identification.algorithm")),
    *(f"ssl.keystore.{key}" for key in ("type", "location", "password", "certificate.chain", "key")),
    *(f"ssl.truststore.{key}" for key in ("type", "location", "password", "certificates")),
    "ssl.key.password",
    "sasl.mechanism",
    _JAAS,
    "sasl.login.callback.handler.class",
    *(f"{_OAUTH}{key}" for key in ("token.endpoint.url", "scope", "header.urlencode")),
    *(f"{_OAUTH}client.credentials.client.{key}" for key in ("id", "secret")),
})  # fmt: skip
#: Of Java's clients alone: how they find classes, and how often they look after their logins.
_PASSED_OVER: Final = (
    "security.providers",
    "ssl.provider",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "sasl.client.callback.handler.class",
    "sasl.kerberos.",
    "sasl.login.",
    f"{_OAUTH}jwt.",
    f"{_OAUTH}jwks.",
    f"{_OAUTH}expected.",
    f"{_OAUTH}clock.",
    f"{_OAUTH}scope.claim.",
    f"{_OAUTH}sub.claim.",
)


class ClientProperties(msgspec.Struct, frozen=True, kw_only=True):
    #: ``host:port`` with commas; None where the properties do not say.
    bootstrap_servers: str | None
    security: SecurityConfig


def relevant_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that are looked at here."""
    return {key: value for key, value in properties.items() if key == BOOTSTRAP_SERVERS or key.startswith(_PREFIXES)}


def parse_client_properties(properties: Mapping[str, str]) -> ClientProperties:
    """``QuorateError`` names the key, and never its value where that may be a secret."""
    _refuse_unknown_keys(properties)
    given = {key: value.strip() for key, value in properties.items()}
    protocol = _protocol(given)
    found: dict[str, Any] = {"protocol": protocol}
    if protocol.uses_tls:
        found |= _tls(given)
    if protocol.uses_sasl:
        found |= _sasl(given)
    security = SecurityConfig(**found)
    for key, problem in security.problems():
        raise QuorateError(f"{key} {problem}")
    return ClientProperties(bootstrap_servers=given.get(BOOTSTRAP_SERVERS) or None, security=security)


def _refuse_unknown_keys(properties: Mapping[str, str]) -> None:
    for key in properties:
        if key.startswith(_PREFIXES) and key not in _KNOWN and not key.startswith(_PASSED_OVER):
            near = get_close_matches(key, _KNOWN, n=1)
            raise QuorateError(f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _protocol(given: Mapping[str, str]) -> SecurityProtocol:
    text = given.get("security.protocol") or SecurityProtocol.PLAINTEXT
    if text not in list(SecurityProtocol):
        raise QuorateError(f"security.protocol: {text!r} is not one of {', '.join(SecurityProtocol)}")
    return SecurityProtocol(text)


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    settings = parse_tls_settings(ListenerSettings(given, ""), is_server=False)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("", "https"):
        raise QuorateError(f"ssl.endpoint.identification.algorithm: {algorithm!r} is neither https nor empty")
    return {
        "verify_hostname": algorithm == "https",
        "tls_versions": ",".join(_tls_versions(given, settings.versions)),
        "cipher_suites": ",".join(settings.ciphers) or None,
        "key_password": settings.key_password,
        **_pem(settings.trust, "ca_location", "ca_certificates"),
        **_pem(settings.chain, "certificate_location", "certificate_chain"),
        **_pem(settings.key, "key_location", "private_key"),
    }


def _tls_versions(given: Mapping[str, str], enabled: frozenset[TlsVersion]) -> list[TlsVersion]:
    """With ``ssl.protocol`` 1.2 no 1.3 is used, whatever is enabled; 1.3 is Kafka's default and forbids nothing."""
    protocol = given.get("ssl.protocol") or TlsVersion.TLS_1_3
    if protocol not in ("TLS", *TlsVersion):
        raise QuorateError(f"ssl.protocol: {protocol!r} is not one of {', '.join(TlsVersion)}")
    versions = sorted(enabled & {TlsVersion.TLS_1_2} if protocol == TlsVersion.TLS_1_2 else enabled)
    if not versions:
        raise QuorateError(f"ssl.protocol {protocol} is not among ssl.enabled.protocols")
    return versions


def _pem(source: PemSource | None, location: str, text: str) -> dict[str, str | None]:
    return {} if source is None else {location: source.path, text: source.text}


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in list(SaslMechanism):
        problem = f"{mechanism!r} is not one of" if mechanism else "is missing; there are"
        raise QuorateError(f"sasl.mechanism: {problem} {', '.join(SaslMechanism)}")
    if _JAAS not in given:
        raise QuorateError(f"{_JAAS} is missing, which has the login of {mechanism}")
    entry = parse_jaas(given[_JAAS])
    if mechanism == SaslMechanism.AWS_MSK_IAM or given.get("sasl.login.callback.handler.class", "").startswith(
        _MSK_LOGIN
    ):
        return _aws(entry)
    if mechanism == SaslMechanism.OAUTHBEARER:
        return _oauth(given, entry)
    credentials = credentials_of(entry)
    for option, value in (("username", credentials.username), ("password", credentials.password)):
        if value is None:
            raise QuorateError(f'{_JAAS} has no {option}, as in {option}="..."')
    return {
        "sasl_mechanism": SaslMechanism(mechanism),
        "username": credentials.username,
        "password": credentials.password,
        "delegation_token": credentials.by_token,
    }


def _oauth(given: Mapping[str, str], entry: JaasEntry) -> dict[str, Any]:
    """Id, secret and scope are settings since Kafka 4.1, and were options of JAAS before."""
    url = given.get(f"{_OAUTH}token.endpoint.url")
    if not url:
        raise QuorateError(
            f"{_OAUTH}token.endpoint.url is missing: https://... of a provider, or file:///... of a token"
        )
    extensions = credentials_of(entry).extensions
    found: dict[str, Any] = {
        "sasl_mechanism": SaslMechanism.OAUTHBEARER,
        "oauth_extensions": ",".join(f"{name}={value}" for name, value in extensions.items()) or None,
    }
    parts = urlsplit(url)
    if parts.scheme == "file":
        return found | {"oauth_token_location": unquote(parts.path)}
    secret = given.get(f"{_OAUTH}client.credentials.client.secret") or entry.options.get("clientSecret")
    if secret is None:
        raise QuorateError(f"{_OAUTH}client.credentials.client.secret is missing, and clientSecret in {_JAAS} too")
    return found | {
        "oauth_token_endpoint": url,
        "oauth_client_id": given.get(f"{_OAUTH}client.credentials.client.id") or entry.options.get("clientId"),
        "oauth_client_secret": secret,
        "oauth_scope": given.get(f"{_OAUTH}scope") or entry.options.get("scope"),
        "oauth_ca_location": entry.options.get("ssl.truststore.location"),
        "oauth_header_urlencode": given.get(f"{_OAUTH}header.urlencode", "").lower() == "true",
    }


def _aws(entry: JaasEntry) -> dict[str, Any]:
    return {
        "sasl_mechanism": SaslMechanism.AWS_MSK_IAM,
        "aws_region": entry.options.get("awsStsRegion"),
        "aws_profile": entry.options.get("awsProfileName"),
        "aws_role_arn": entry.options.get("awsRoleArn"),
        "aws_role_session_name": entry.options.get("awsRoleSessionName"),
    }
