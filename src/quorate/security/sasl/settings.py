"""What a listener's settings say about SASL: mechanisms, sessions, and against what each mechanism checks."""

from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.security.access_tokens import TokenRules
from quorate.security.jaas import JaasEntry, parse_jaas
from quorate.security.listeners import ListenerSettings
from quorate.security.sasl.mechanisms import MECHANISMS, OAUTHBEARER, PLAIN
from quorate.security.sasl.session import DEFAULT_FAILURE_DELAY_MS, DEFAULT_MAX_RECEIVE_BYTES, SaslRules

_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    rules: TokenRules
    #: Of a JWKS document: ``file:``, ``https:`` or, where nobody can listen, ``http:``.
    key_set_url: str
    refresh_ms: int


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Shown without its passwords."""

    rules: SaslRules
    #: Of PLAIN, by user; None where it checks the SCRAM users of the cluster.
    passwords: dict[str, str] | None = None
    tokens: TokenSettings | None = None

    def __repr__(self) -> str:
        return f"SaslSettings({', '.join(self.rules.mechanisms)})"


def parse_sasl_settings(settings: ListenerSettings) -> SaslSettings:
    mechanisms = _mechanisms(settings)
    rules = SaslRules(
        mechanisms=mechanisms,
        max_reauthentication_ms={
            mechanism: limit_ms
            for mechanism in mechanisms
            if (limit_ms := _number(settings, "connections.max.reauth.ms", 0, _MAX_LONG, mechanism)) > 0
        },
        max_receive_bytes=_number(settings, "sasl.server.max.receive.size", DEFAULT_MAX_RECEIVE_BYTES, _MAX_INT),
        failure_delay_ms=_number(
            settings, "connection.failed.authentication.delay.ms", DEFAULT_FAILURE_DELAY_MS, _MAX_INT
        ),
    )
    return SaslSettings(
        rules=rules,
        passwords=_passwords(settings) if PLAIN in mechanisms else None,
        tokens=_tokens(settings) if OAUTHBEARER in mechanisms else None,
    )


def _mechanisms(settings: ListenerSettings) -> tuple[str, ...]:
    setting = settings.name_of("sasl.enabled.mechanisms")
    words = [word.strip().upper() for word in (settings.get("sasl.enabled.mechanisms") or "").split(",")]
    mechanisms = tuple(dict.fromkeys(filter(None, words)))
    if not mechanisms:
        raise QuorateError(f"{setting} names no mechanism for a listener with SASL; there are {', '.join(MECHANISMS)}")
    for mechanism in mechanisms:
        if mechanism == "GSSAPI":
            raise QuorateError(f"{setting}: GSSAPI (Kerberos) is not supported; there are {', '.join(MECHANISMS)}")
        if mechanism not in MECHANISMS:
            raise QuorateError(f"{setting}: {mechanism!r} is not one of {', '.join(MECHANISMS)}")
    return mechanisms


def _passwords(settings: ListenerSettings) -> dict[str, str] | None:
    entry = _jaas(settings, PLAIN)
    if entry is None:
        return None
    if not entry.passwords:
        raise QuorateError('sasl.jaas.config of PLAIN names no users, as in user_alice="..."')
    return entry.passwords


def _jaas(settings: ListenerSettings, mechanism: str) -> JaasEntry | None:
    text = settings.get_of_mechanism(mechanism, "sasl.jaas.config")
    return None if text is None else parse_jaas(text, f"{mechanism.lower()}.sasl.jaas.config")


def _tokens(settings: ListenerSettings) -> TokenSettings:
    def get(key: str) -> str | None:
        return settings.get_of_mechanism(OAUTHBEARER, f"sasl.oauthbearer.{key}")

    url = get("jwks.endpoint.url")
    if url is None:
        raise QuorateError("OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, where the keys of the issuer are")
    if not url.lower().startswith(("https://", "http://", "file:")):
        raise QuorateError(f"sasl.oauthbearer.jwks.endpoint.url: {url!r} is not of https:, http: or file:")
    audience = tuple(word.strip() for word in (get("expected.audience") or "").split(",") if word.strip())
    if not audience:
        # Apache Kafka lets it be left out: then a token for any other service of the issuer is good here too.
        raise QuorateError("OAUTHBEARER needs sasl.oauthbearer.expected.audience, to refuse tokens for others")
    issuer = get("expected.issuer")
    if issuer is None:
        raise QuorateError("OAUTHBEARER needs sasl.oauthbearer.expected.issuer")
    defaults = TokenRules()
    return TokenSettings(
        rules=TokenRules(
            expected_issuer=issuer,
            expected_audience=audience,
            clock_skew_seconds=_number(
                settings, "sasl.oauthbearer.clock.skew.seconds", defaults.clock_skew_seconds, 3_600
            ),
            principal_claim=get("sub.claim.name") or defaults.principal_claim,
            scope_claim=get("scope.claim.name") or defaults.scope_claim,
        ),
        key_set_url=url,
        refresh_ms=max(1, _number(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, _MAX_LONG)),
    )


def _number(settings: ListenerSettings, key: str, default: int, most: int, mechanism: str | None = None) -> int:
    text = settings.get(key) if mechanism is None else settings.get_of_mechanism(mechanism, key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > most:
        raise QuorateError(f"{settings.name_of(key)}: {text!r} is not a number from 0 to {most}")
    return int(text)
