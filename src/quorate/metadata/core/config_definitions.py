"""The definition of a config: its name, type, default and rule, and the parsing of its value.

Config values travel and are stored as text, as Kafka's protocol has them; ``ConfigDefinition.parse`` is the one place
that reads them.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import IntEnum

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """Kafka's codes, as DescribeConfigs reports them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigDefinition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: ConfigType
    default: str
    documentation: str
    #: Raises ValueError with the reason, or returns nothing.
    check: Callable[[ConfigValue], None] | None = None
    #: The broker config whose value a topic takes where it has none of its own.
    broker_synonym: str | None = None
    read_only: bool = False
    #: A state rather than a setting: given when a topic is created, later only taken away, and shown where it is given.
    is_state: bool = False
    #: A secret: its value is shown to nobody, and never kept in the metadata.
    is_sensitive: bool = False

    def parse(self, text: str) -> ConfigValue:
        """The value of the text; INVALID_CONFIG names what is wrong with it."""
        try:
            value = _PARSERS[self.type](text.strip())
            if self.check is not None:
                self.check(value)
        except ValueError as error:
            shown = "" if self.is_sensitive else f" {text!r}"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Invalid value{shown} for configuration {self.name}: {error}"
            ) from None
        return value


def find_definition(definitions: Mapping[str, ConfigDefinition], name: str) -> ConfigDefinition:
    definition = definitions.get(name)
    if definition is None:
        near = get_close_matches(name, definitions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown configuration {name}{hint}")
    return definition


def between(low: float, high: float) -> Callable[[ConfigValue], None]:
    def check(value: ConfigValue) -> None:
        if not (isinstance(value, int | float) and low <= value <= high):
            raise ValueError(f"it must be from {low} to {high}")

    return check


def at_least(low: int) -> Callable[[ConfigValue], None]:
    def check(value: ConfigValue) -> None:
        if not (isinstance(value, int | float) and value >= low):
            raise ValueError(f"it must be at least {low}")

    return check


def one_of(*choices: str) -> Callable[[ConfigValue], None]:
    def check(value: ConfigValue) -> None:
        named = value if isinstance(value, tuple) else (value,)
        if not named or any(name not in choices for name in named):
            raise ValueError(f"it must be of {', '.join(choices)}")

    return check


def _parse_boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("it must be true or false")


def _parse_integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"not a number of type {'INT' if bits == 32 else 'LONG'}") from None
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError(f"it does not fit in {bits} bits")
        return number

    return parse


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[ConfigType, Callable[[str], ConfigValue]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _parse_integer(32),
    ConfigType.SHORT: _parse_integer(16),
    ConfigType.LONG: _parse_integer(64),
    ConfigType.DOUBLE: float,
    ConfigType.LIST: _parse_list,
}
