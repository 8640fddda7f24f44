"""The broker configs that bound how many connections clients have, with Apache Kafka's names and defaults."""

import ipaddress

from quorate.metadata.core.config_definitions import INT32_MAX, ConfigDefinition, ConfigType, ConfigValue, at_least


def parse_overrides(text: str) -> dict[str, int]:
    """The most connections by address; raises ValueError with the reason."""
    overrides = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address, _, most = part.rpartition(":")
        try:
            overrides[normal_address(address.strip())] = int(most)
        except ValueError:
            raise ValueError(f"{part!r} is not of the form address:number, such as 10.0.0.7:100") from None
        if int(most) < 0:
            raise ValueError(f"the number in {part!r} must be at least 0")
    return overrides


def normal_address(text: str) -> str:
    """The one way to write the address; raises ValueError where it is none."""
    address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_address(text: str) -> bool:
    try:
        normal_address(text)
    except ValueError:
        return False
    return True


def _check_overrides(value: ConfigValue) -> None:
    parse_overrides(str(value))


CONNECTION_CONFIGS = (
    ConfigDefinition(
        name="max.connection.creation.rate",
        type=ConfigType.INT,
        default=str(INT32_MAX),
        check=at_least(0),
        documentation="How many connections are taken in a second; those beyond it wait.",
    ),
    ConfigDefinition(
        name="max.connections",
        type=ConfigType.INT,
        default=str(INT32_MAX),
        check=at_least(0),
        documentation="How many connections there may be; those beyond it wait until others end.",
    ),
    ConfigDefinition(
        name="max.connections.per.ip",
        type=ConfigType.INT,
        default=str(INT32_MAX),
        check=at_least(0),
        documentation="How many connections there may be from one address; those beyond it are closed.",
    ),
    ConfigDefinition(
        name="max.connections.per.ip.overrides",
        type=ConfigType.STRING,
        default="",
        check=_check_overrides,
        documentation="The same for certain addresses, as in 10.0.0.7:100,10.0.0.8:0.",
    ),
)
