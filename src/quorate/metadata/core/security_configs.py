"""The broker configs of security, with Apache Kafka's names and defaults, and which of them are secrets.

Most can be set for one listener, ``listener.name.<listener>.<config>``, and some of these for one mechanism there,
``listener.name.<listener>.<mechanism>.<config>``.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.metadata.core.config_definitions import (
    INT32_MAX,
    INT64_MAX,
    ConfigDefinition,
    ConfigType,
    ConfigValue,
    at_least,
    between,
    one_of,
)
from quorate.security.delegation_token import DEFAULT_EXPIRY_MS, DEFAULT_MAX_LIFETIME_MS
from quorate.security.jaas import parse_jaas
from quorate.security.principals import parse_mapping_rules, parse_super_users
from quorate.security.sasl.mechanisms import MECHANISMS
from quorate.security.sasl.session import DEFAULT_FAILURE_DELAY_MS, DEFAULT_MAX_RECEIVE_BYTES
from quorate.security.tls_settings import ClientAuth, TlsVersion

#: The one authorizer that there is, by its name in Apache Kafka.
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_LISTENER_PREFIX: Final = "listener.name."


def _parsed_by(parse: Callable[[str], object]) -> Callable[[ConfigValue], None]:
    def check(value: ConfigValue) -> None:
        if not value:
            return
        try:
            parse(str(value))
        except QuorateError as error:
            raise ValueError(str(error)) from None

    return check


def _text(name: str, documentation: str, default: str = "", **others: object) -> ConfigDefinition:
    return ConfigDefinition(
        name=name,
        type=ConfigType.STRING,
        default=default,
        documentation=documentation,
        **others,  # type: ignore[arg-type]
    )


def _secret(name: str, documentation: str, check: Callable[[ConfigValue], None] | None = None) -> ConfigDefinition:
    """It is in the node's file alone, so that it is in no log and no snapshot of the metadata."""
    return _text(name, documentation, read_only=True, is_sensitive=True, check=check)


#: Those that hold for a node as a whole.
_OF_NODE: Final = (
    _text(
        "authorizer.class.name",
        "What decides who may do what; without one everybody may do everything.",
        read_only=True,
        check=one_of("", STANDARD_AUTHORIZER),
    ),
    _text(
        "super.users",
        "Principals that may do everything, with semicolons between them: User:admin;User:backup.",
        read_only=True,
        check=_parsed_by(parse_super_users),
    ),
    ConfigDefinition(
        name="allow.everyone.if.no.acl.found",
        type=ConfigType.BOOLEAN,
        default="false",
        read_only=True,
        documentation="Whether everybody may use a resource that no ACL is about.",
    ),
    ConfigDefinition(
        name="connection.failed.authentication.delay.ms",
        type=ConfigType.INT,
        default=str(DEFAULT_FAILURE_DELAY_MS),
        check=between(0, INT32_MAX),
        read_only=True,
        documentation="How long the answer to a failed login is held back, and its connection kept.",
    ),
    _secret(
        "delegation.token.secret.key",
        "The same on all nodes: what tokens' secrets are made of. Without it there are no tokens.",
    ),
    ConfigDefinition(
        name="delegation.token.max.lifetime.ms",
        type=ConfigType.LONG,
        default=str(DEFAULT_MAX_LIFETIME_MS),
        check=at_least(1),
        read_only=True,
        documentation="How long a delegation token can be renewed.",
    ),
    ConfigDefinition(
        name="delegation.token.expiry.time.ms",
        type=ConfigType.LONG,
        default=str(DEFAULT_EXPIRY_MS),
        check=at_least(1),
        read_only=True,
        documentation="How long a delegation token is valid that is not renewed.",
    ),
    ConfigDefinition(
        name="delegation.token.expiry.check.interval.ms",
        type=ConfigType.LONG,
        default="3600000",
        check=at_least(1),
        read_only=True,
        documentation="How often expired delegation tokens are removed.",
    ),
    _text("inter.broker.listener.name", "The listener whose settings hold between nodes.", read_only=True),
    _text("security.inter.broker.protocol", "The same, named by its protocol.", "PLAINTEXT", read_only=True),
    _text(
        "listener.security.protocol.map",
        "The security protocol of each listener.",
        ",".join(f"{each}:{each}" for each in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")),
        read_only=True,
    ),
)

#: Those that a listener may have of its own. What TLS needs can be changed while a node runs.
_OF_LISTENERS: Final = (
    _text(
        "sasl.enabled.mechanisms",
        f"The mechanisms that clients may log in by, of {', '.join(MECHANISMS)}.",
        "",
        read_only=True,
    ),
    _secret("sasl.jaas.config", "Users and passwords of PLAIN.", check=_parsed_by(parse_jaas)),
    ConfigDefinition(
        name="sasl.server.max.receive.size",
        type=ConfigType.INT,
        default=str(DEFAULT_MAX_RECEIVE_BYTES),
        check=between(0, INT32_MAX),
        read_only=True,
        documentation="The most bytes of a request before its sender has logged in.",
    ),
    ConfigDefinition(
        name="connections.max.reauth.ms",
        type=ConfigType.LONG,
        default="0",
        check=between(0, INT64_MAX),
        read_only=True,
        documentation="How long a client may go on before it has to log in again; 0 for as long as it likes.",
    ),
    _text("sasl.oauthbearer.jwks.endpoint.url", "Where the keys of the tokens' issuer are.", read_only=True),
    _text("sasl.oauthbearer.expected.issuer", "Whose tokens are accepted.", read_only=True),
    _text("sasl.oauthbearer.expected.audience", "For whom a token has to be, one of these.", read_only=True),
    _text("sasl.oauthbearer.sub.claim.name", "The claim that names the principal.", "sub", read_only=True),
    _text("sasl.oauthbearer.scope.claim.name", "The claim that names the scopes.", "scope", read_only=True),
    ConfigDefinition(
        name="sasl.oauthbearer.clock.skew.seconds",
        type=ConfigType.INT,
        default="30",
        check=between(0, 3_600),
        read_only=True,
        documentation="How far the issuer's clock may be from this node's.",
    ),
    ConfigDefinition(
        name="sasl.oauthbearer.jwks.endpoint.refresh.ms",
        type=ConfigType.LONG,
        default="3600000",
        check=at_least(1),
        read_only=True,
        documentation="How often the issuer's keys are read again.",
    ),
    _text("ssl.client.auth", "Whether clients show a certificate.", "none", check=one_of("", *ClientAuth)),
    ConfigDefinition(
        name="ssl.enabled.protocols",
        type=ConfigType.LIST,
        default=",".join(TlsVersion),
        check=one_of(*TlsVersion),
        documentation="The versions of TLS that a handshake may agree on.",
    ),
    _text("ssl.cipher.suites", "The cipher suites of TLS 1.2 that it may agree on; empty for OpenSSL's choice."),
    _text("ssl.keystore.type", "PEM; nothing else is read.", "PEM", check=one_of("", "PEM")),
    _text("ssl.keystore.location", "A file with the private key and its certificates."),
    _text("ssl.keystore.certificate.chain", "The certificates themselves."),
    _secret("ssl.keystore.key", "The private key itself."),
    _secret("ssl.key.password", "The password of the private key."),
    _text("ssl.truststore.type", "PEM; nothing else is read.", "PEM", check=one_of("", "PEM")),
    _text("ssl.truststore.location", "A file with the authorities of clients' certificates."),
    _text("ssl.truststore.certificates", "These authorities themselves."),
    _text(
        "ssl.principal.mapping.rules",
        "How the subject of a client's certificate becomes its principal.",
        "DEFAULT",
        check=_parsed_by(parse_mapping_rules),
        read_only=True,
    ),
)

SECURITY_CONFIGS: Final = (*_OF_NODE, *_OF_LISTENERS)
_BY_NAME: Final = {definition.name: definition for definition in SECURITY_CONFIGS}
_LISTENER_NAMES: Final = frozenset(definition.name for definition in _OF_LISTENERS)
_OF_MECHANISMS: Final = frozenset(name for name in _LISTENER_NAMES if name.startswith(("sasl.", "connections.")))
_MECHANISM_PREFIXES: Final = tuple(f"{mechanism.lower()}." for mechanism in MECHANISMS)
#: Words that are in the names of secrets, of configs that are not known too.
_SECRET_WORDS: Final = ("password", "secret", "credential", "private.key", "jaas.config", "keystore.key")


def find_security_definition(name: str) -> ConfigDefinition | None:
    """Also of a config for one listener, or one mechanism of it; None for what is no config of security."""
    if not name.startswith(_LISTENER_PREFIX):
        return _BY_NAME.get(name)
    _, _, rest = name.removeprefix(_LISTENER_PREFIX).partition(".")
    for prefix in _MECHANISM_PREFIXES:
        if rest.startswith(prefix):
            base = rest.removeprefix(prefix)
            return _BY_NAME[base] if base in _OF_MECHANISMS else None
    return _BY_NAME[rest] if rest in _LISTENER_NAMES else None


def listener_definition(name: str) -> ConfigDefinition | None:
    """Of a config for one listener, under its whole name; None for any other name."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    general = find_security_definition(name)
    return None if general is None else msgspec.structs.replace(general, name=name)


def is_secret(name: str) -> bool:
    """Whether a config's value is shown to nobody. What looks like a secret is one, whether it is known or not."""
    definition = find_security_definition(name)
    if definition is not None:
        return definition.is_sensitive
    return any(word in name.lower() for word in _SECRET_WORDS)
