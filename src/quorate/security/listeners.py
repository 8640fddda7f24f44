"""The listeners of a node in Kafka's settings: names, addresses, security protocols, and what each has of its own.

``listener.name.<name>.<setting>`` is a setting for one listener, and ``<setting>`` for all that have none of their own.
A mistake is one sentence that names the setting.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from quorate.kernel.address import Address, parse_address
from quorate.kernel.errors import QuorateError

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
_PREFIX: Final = "listener.name."


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Shown without its settings: some are secrets."""

    #: In capitals, as Kafka writes it.
    name: str
    protocol: SecurityProtocol
    address: Address
    #: What clients that came by this listener are told.
    advertised: Address
    settings: "ListenerSettings"

    def __repr__(self) -> str:
        return f"Listener({self.name}:{self.protocol} {self.address}, advertised {self.advertised})"


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """In the order in which they are written; the first is what a node names where it can name but one."""

    all: tuple[Listener, ...]
    #: The one whose settings hold between nodes.
    between_nodes: Listener

    def find(self, name: str) -> Listener | None:
        return next((listener for listener in self.all if listener.name == name.upper()), None)


class ListenerSettings:
    """The settings of one listener, by the names that they have without their prefix."""

    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        self._settings = settings
        self._prefix = f"{_PREFIX}{name.lower()}."

    def __repr__(self) -> str:
        return f"ListenerSettings({self._prefix}*)"

    def get(self, key: str) -> str | None:
        """The listener's own value, or that of all; None for neither. An empty one counts as none."""
        return self._settings.get(self._prefix + key, "").strip() or self._settings.get(key, "").strip() or None

    def get_of_mechanism(self, mechanism: str, key: str) -> str | None:
        """The same for what a SASL mechanism may have of its own."""
        own = self._settings.get(f"{self._prefix}{mechanism.lower()}.{key}", "").strip()
        return own or self.get(key)

    def name_of(self, key: str) -> str:
        """How the setting is written where its value comes from, for messages."""
        return self._prefix + key if self._settings.get(self._prefix + key) else key


def parse_listeners(settings: Mapping[str, str]) -> Listeners:
    """Of all settings of a node, by Kafka's names; those that are not about listeners are passed over."""
    protocols = _parse_protocols(settings.get("listener.security.protocol.map", ""))
    addresses = _parse_addresses("listeners", settings.get("listeners", ""))
    if not addresses:
        raise QuorateError('listeners names none, as in listeners = "PLAINTEXT://host:9092"')
    _check_ports(addresses)
    advertised = _parse_addresses("advertised.listeners", settings.get("advertised.listeners", ""))
    for name in advertised:
        if name not in addresses:
            raise QuorateError(f"advertised.listeners names {name}, which is not among listeners")
    _check_prefixes(settings, addresses)
    listeners = tuple(
        Listener(
            name=name,
            protocol=_protocol(name, protocols),
            address=address,
            advertised=_reachable(name, address, advertised.get(name)),
            settings=ListenerSettings(settings, name),
        )
        for name, address in addresses.items()
    )
    return Listeners(all=listeners, between_nodes=_between_nodes(listeners, settings))


def _parse_addresses(setting: str, text: str) -> dict[str, Address]:
    """``NAME://host:port`` with commas between them."""
    addresses: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator or not _is_name(name):
            raise QuorateError(f"{setting}: {part!r} is not of the form NAME://host:port")
        if name.upper() in addresses:
            raise QuorateError(f"{setting} names {name.upper()} twice")
        try:
            addresses[name.upper()] = parse_address(address)
        except QuorateError as error:
            raise QuorateError(f"{setting}: {error}") from None
    return addresses


def _is_name(name: str) -> bool:
    return bool(name) and name.isascii() and all(each.isalnum() or each in "_-." for each in name)


def _parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    protocols = {str(protocol): protocol for protocol in SecurityProtocol}
    given: set[str] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, word = (piece.strip().upper() for piece in part.partition(":"))
        if not separator or not _is_name(name) or word not in SecurityProtocol.__members__:
            raise QuorateError(
                f"listener.security.protocol.map: {part!r} is not of the form NAME:PROTOCOL, "
                f"with one of {', '.join(SecurityProtocol)}"
            )
        if name in given:
            raise QuorateError(f"listener.security.protocol.map names {name} twice")
        given.add(name)
        protocols[name] = SecurityProtocol(word)
    return protocols


def _protocol(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    if name not in protocols:
        raise QuorateError(
            f"the listener {name} has no security protocol: name it in listener.security.protocol.map = "
            f'"{name}:PLAINTEXT", or another of {", ".join(SecurityProtocol)}'
        )
    return protocols[name]


def _check_ports(addresses: Mapping[str, Address]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for name, address in addresses.items():
        if address.port == 0:
            continue
        other = taken.setdefault((address.host, address.port), name)
        if other != name:
            raise QuorateError(f"listeners: {other} and {name} have the same address, {address}")


def _check_prefixes(settings: Mapping[str, str], addresses: Mapping[str, Address]) -> None:
    """A setting of a listener that there is not was meant for one that there is."""
    for key in settings:
        if key.startswith(_PREFIX) and not any(key.startswith(f"{_PREFIX}{name.lower()}.") for name in addresses):
            raise QuorateError(f"{key} is for a listener that is not among listeners: {', '.join(addresses)}")


def _reachable(name: str, address: Address, advertised: Address | None) -> Address:
    if advertised is None and address.host in _ANY_ADDRESS:
        raise QuorateError(
            f"the listener {name} at {address} has no address that clients can connect to: "
            f'name one in advertised.listeners = "{name}://host:port"'
        )
    if advertised is not None and advertised.host in _ANY_ADDRESS:
        raise QuorateError(f"advertised.listeners: {name}://{advertised} is no address that clients can connect to")
    return advertised or address


def _between_nodes(listeners: tuple[Listener, ...], settings: Mapping[str, str]) -> Listener:
    name = settings.get("inter.broker.listener.name", "").strip()
    protocol = settings.get("security.inter.broker.protocol", "").strip()
    if name and protocol:
        raise QuorateError("name either inter.broker.listener.name or security.inter.broker.protocol, not both")
    if not name and not protocol:
        return listeners[0]
    setting, wanted = ("inter.broker.listener.name", name) if name else ("security.inter.broker.protocol", protocol)
    for listener in listeners:
        if wanted.upper() == (listener.name if name else listener.protocol):
            return listener
    raise QuorateError(f"{setting}: there is no listener {wanted!r}, only {', '.join(each.name for each in listeners)}")
