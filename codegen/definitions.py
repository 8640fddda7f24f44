"""The model of a message definition, and the rules for which definitions and fields are generated. Pure."""

import re
from dataclasses import dataclass
from typing import Any

NEWEST = 0x7FFF
DATA_TYPES = ("ConsumerProtocolAssignment", "ConsumerProtocolSubscription")

# Kafka 4 removed Produce 0-2 but still advertises them, as librdkafka stops compressing where they are missing. A node
# must be able to read and refuse what a client then sends; the definitions still describe these versions.
EARLIEST_VERSIONS = {"Produce": 0}


@dataclass(frozen=True)
class VersionRange:
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "VersionRange | None":
        """``none``, ``3``, ``3-5`` or ``3+``."""
        if text == "none":
            return None
        first, separator, last = text.partition("-")
        if separator:
            return cls(int(first), int(last))
        return cls(int(text[:-1]), NEWEST) if text.endswith("+") else cls(int(text), int(text))

    def within(self, other: "VersionRange") -> "VersionRange | None":
        """The part of this range that lies inside the other; None where they do not meet."""
        first, last = max(self.first, other.first), min(self.last, other.last)
        return VersionRange(first, last) if first <= last else None


@dataclass(frozen=True)
class FieldDefinition:
    name: str
    type: str
    is_array: bool
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    ignorable: bool
    default: Any


@dataclass(frozen=True)
class StructDefinition:
    name: str
    fields: tuple[FieldDefinition, ...]


@dataclass(frozen=True)
class MessageDefinition:
    """A request, response or data type. ``structs`` hold what is nested in it, each after those that it contains."""

    kind: str
    name: str
    api_key: int | None
    versions: VersionRange
    flexible_from: int | None
    latest_unstable: bool
    root: StructDefinition
    structs: tuple[StructDefinition, ...]


@dataclass(frozen=True)
class Api:
    """One module to generate: the request and response of an API, or a data type alone."""

    name: str
    messages: tuple[MessageDefinition, ...]

    @property
    def module(self) -> str:
        return snake_case(self.name)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def select_apis(raw_definitions: list[dict[str, Any]]) -> list[Api]:
    """What clients can ask of a broker, by API key, and then the data types."""
    by_name = {raw["name"]: raw for raw in raw_definitions}
    requests = [
        raw
        for raw in raw_definitions
        if raw["type"] == "request" and "broker" in raw.get("listeners", ()) and raw["validVersions"] != "none"
    ]
    apis = []
    for raw in sorted(requests, key=lambda raw: int(raw["apiKey"])):
        name = raw["name"].removesuffix("Request")
        unstable = {"latestVersionUnstable": raw.get("latestVersionUnstable", False)}
        messages = (parse_message(raw, name), parse_message(by_name[f"{name}Response"] | unstable, name))
        apis.append(Api(name, messages))
    return apis + [Api(name, (parse_message(by_name[name], name),)) for name in DATA_TYPES]


def parse_message(raw: dict[str, Any], api_name: str) -> MessageDefinition:
    versions = VersionRange.parse(raw["validVersions"])
    if versions is None:
        raise ValueError(f"{raw['name']} has no valid version")
    versions = VersionRange(EARLIEST_VERSIONS.get(api_name, versions.first), versions.last)
    flexible = VersionRange.parse(raw["flexibleVersions"])
    structs: dict[str, StructDefinition] = {}
    shared = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", ())}
    root = _parse_struct(raw["name"], raw["fields"], versions, shared, structs)
    return MessageDefinition(
        kind=raw["type"],
        name=raw["name"],
        api_key=raw.get("apiKey"),
        versions=versions,
        flexible_from=flexible.first if flexible else None,
        latest_unstable=raw.get("latestVersionUnstable", False),
        root=root,
        structs=tuple(structs.values()),
    )


def _parse_struct(
    name: str,
    raw_fields: list[dict[str, Any]],
    versions: VersionRange,
    shared: dict[str, list[dict[str, Any]]],
    structs: dict[str, StructDefinition],
) -> StructDefinition:
    fields = []
    for raw in raw_fields:
        field = _parse_field(raw, versions)
        if field is None:
            continue
        fields.append(field)
        if field.type[0].isupper() and field.type not in structs:
            nested = raw["fields"] if "fields" in raw else shared[field.type]
            structs[field.type] = _parse_struct(field.type, nested, versions, shared, structs)
    return StructDefinition(name, tuple(fields))


def _parse_field(raw: dict[str, Any], message_versions: VersionRange) -> FieldDefinition | None:
    """The field, its ranges clipped to the versions of its message; None where none of these has it."""
    versions = VersionRange.parse(raw["versions"])
    versions = versions.within(message_versions) if versions else None
    if versions is None:
        return None
    nullable = VersionRange.parse(raw.get("nullableVersions", "none"))
    tagged = VersionRange.parse(raw.get("taggedVersions", "none"))
    if tagged and tagged.within(message_versions) != versions:
        raise ValueError(f"{raw['name']} is tagged in only some of its versions, which is not supported")
    field_type = raw["type"]
    return FieldDefinition(
        name=snake_case(raw["name"]),
        type=field_type.removeprefix("[]"),
        is_array=field_type.startswith("[]"),
        versions=versions,
        nullable=nullable.within(versions) if nullable else None,
        tag=raw["tag"] if tagged else None,
        ignorable=raw.get("ignorable", False),
        default=raw.get("default"),
    )
