"""TLS in a listener's settings: where key, certificates and trust come from, and what a handshake may agree on.

Only PEM is read, from files or out of the settings themselves (KIP-651); Java's own formats are refused by name.
"""

from enum import StrEnum
from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.security.listeners import ListenerSettings
from quorate.security.principals import PrincipalMapping, parse_mapping_rules

_BEGIN: Final = "-----BEGIN "


class ClientAuth(StrEnum):
    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(StrEnum):
    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


class PemSource(msgspec.Struct, frozen=True, kw_only=True):
    """Either a file or the text itself; shown without the text."""

    setting: str
    path: str | None = None
    text: str | None = None

    def __repr__(self) -> str:
        return f"PemSource({self.setting}{'' if self.path is None else f'={self.path}'})"


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: The private key with its chain, or only the chain where the key is apart.
    chain: PemSource | None
    key: PemSource | None = None
    key_password: str | None = None
    #: Whose certificates are accepted; None for nobody's.
    trust: PemSource | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    versions: frozenset[TlsVersion] = frozenset(TlsVersion)
    #: In OpenSSL's names; empty for OpenSSL's own choice. They are about TLS 1.2.
    ciphers: tuple[str, ...] = ()
    principals: PrincipalMapping = parse_mapping_rules("DEFAULT")

    def __repr__(self) -> str:
        return f"TlsSettings(chain={self.chain}, trust={self.trust}, client_auth={self.client_auth})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it depends on."""
        sources = (self.chain, self.key, self.trust)
        return tuple(dict.fromkeys(each.path for each in sources if each is not None and each.path is not None))


def parse_tls_settings(settings: ListenerSettings, *, is_server: bool = True) -> TlsSettings:
    chain = _source(settings, "keystore", "ssl.keystore.certificate.chain")
    key_text = settings.get("ssl.keystore.key")
    if key_text is not None and (chain is None or chain.path is not None):
        raise QuorateError("ssl.keystore.key needs ssl.keystore.certificate.chain beside it, as PEM text")
    if chain is None and is_server:
        raise QuorateError("a listener with TLS needs ssl.keystore.location, a PEM file with its key and certificates")
    client_auth = _client_auth(settings)
    trust = _source(settings, "truststore", "ssl.truststore.certificates")
    if is_server and client_auth is not ClientAuth.NONE and trust is None:
        raise QuorateError(
            f"{settings.name_of('ssl.client.auth')} = {client_auth} needs ssl.truststore.location, "
            "a PEM file with the authorities of clients' certificates"
        )
    return TlsSettings(
        chain=chain,
        key=None if key_text is None else PemSource(setting="ssl.keystore.key", text=key_text),
        key_password=settings.get("ssl.key.password"),
        trust=trust,
        client_auth=client_auth,
        versions=_versions(settings),
        ciphers=_ciphers(settings),
        principals=parse_mapping_rules(settings.get("ssl.principal.mapping.rules") or "DEFAULT"),
    )


def _source(settings: ListenerSettings, store: str, text_setting: str) -> PemSource | None:
    location, kind = settings.get(f"ssl.{store}.location"), settings.get(f"ssl.{store}.type")
    text = settings.get(text_setting)
    if location is not None and text is not None:
        raise QuorateError(f"name either ssl.{store}.location or {text_setting}, not both")
    if location is None and text is None:
        return None
    if kind is None and location is not None and not location.lower().endswith((".jks", ".p12", ".pfx")):
        kind = "PEM"
    if (kind or "JKS").upper() != "PEM" and text is None:
        raise QuorateError(f"ssl.{store}.type: only PEM is read, not {kind or 'JKS'}; openssl makes PEM of it")
    if settings.get(f"ssl.{store}.password") is not None:
        hint = "; a key's password is ssl.key.password" if store == "keystore" else ""
        raise QuorateError(f"ssl.{store}.password means nothing for PEM{hint}")
    if text is not None:
        if _BEGIN not in text:
            raise QuorateError(f"{text_setting} is no PEM text")
        return PemSource(setting=text_setting, text=text.replace("\\n", "\n"))
    return PemSource(setting=settings.name_of(f"ssl.{store}.location"), path=location)


def _client_auth(settings: ListenerSettings) -> ClientAuth:
    text = (settings.get("ssl.client.auth") or ClientAuth.NONE).lower()
    if text not in list(ClientAuth):
        setting = settings.name_of("ssl.client.auth")
        raise QuorateError(f"{setting}: {text!r} is not one of {', '.join(ClientAuth)}")
    return ClientAuth(text)


def _versions(settings: ListenerSettings) -> frozenset[TlsVersion]:
    text = settings.get("ssl.enabled.protocols")
    if text is None:
        return frozenset(TlsVersion)
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in list(TlsVersion):
            setting = settings.name_of("ssl.enabled.protocols")
            raise QuorateError(f"{setting}: {word!r} is not one of {', '.join(TlsVersion)}")
    return frozenset(TlsVersion(word) for word in words) or frozenset(TlsVersion)


def _ciphers(settings: ListenerSettings) -> tuple[str, ...]:
    words = [word.strip() for word in (settings.get("ssl.cipher.suites") or "").split(",")]
    return tuple(openssl_name(word) for word in words if word)


def openssl_name(suite: str) -> str:
    """Of a cipher suite as Java and the IANA name it; one in OpenSSL's own name stays as it is.

    ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ``ECDHE-RSA-AES128-GCM-SHA256``.
    """
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not suite.startswith("TLS_") or not separator:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20-POLY1305"
    key_exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return key_exchange + cipher.replace("_", "-")
