"""The limits on clients' connections as the metadata has them now."""

from typing import cast

from quorate.metadata.core.connection_configs import parse_overrides
from quorate.metadata.core.effective_configs import BrokerView, broker_value
from quorate.metadata.core.image import MetadataImage
from quorate.transport.connection_quotas import ConnectionCaps


def connection_caps(image: MetadataImage, view: BrokerView) -> ConnectionCaps:
    def number(name: str) -> int:
        return cast(int, broker_value(image, view, name))

    return ConnectionCaps(
        max_connections=number("max.connections"),
        max_per_address=number("max.connections.per.ip"),
        per_address=parse_overrides(cast(str, broker_value(image, view, "max.connections.per.ip.overrides"))),
        max_per_second=number("max.connection.creation.rate"),
    )
