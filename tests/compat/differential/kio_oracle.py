"""kio as an oracle: a dataclass for each message and version, read and written by native code."""

import dataclasses
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from codegen.definitions import snake_case
from quorate.protocol.schema import NO_UUID, Message, VersionedMessage, fields_of
from tests.compat.differential.oracle import Plain, Verdict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class KioOracle:
    name = "kio"

    def knows(self, message_type: type[VersionedMessage], version: int) -> bool:
        return _find_entity(message_type, version) is not None

    def kind(self, message_type: type[VersionedMessage], version: int, path: str) -> str:
        return _kinds(message_type, version)[path]

    def judge(self, message_type: type[VersionedMessage], version: int, encoded: bytes) -> Verdict:
        entity_type = _find_entity(message_type, version)
        entity, size = entity_reader(entity_type)(encoded, 0)
        assert size == len(encoded), "kio reads another number of bytes"
        written = io.BytesIO()
        entity_writer(entity_type)(written, entity)
        return Verdict(_entity_to_plain(entity), written.getvalue())


@cache
def _find_entity(message_type: type[VersionedMessage], version: int) -> Any:
    module = snake_case(message_type.__name__)
    kind = EntityType.data
    for suffix, suffix_kind in (("_request", EntityType.request), ("_response", EntityType.response)):
        if module.endswith(suffix):
            module, kind = module.removesuffix(suffix), suffix_kind
    versions: Any = schema_name_map.get(module, {})
    path = versions.get(version, {}).get(kind)
    return resolve_name(path) if path else None


@cache
def _kinds(message_type: type[VersionedMessage], version: int) -> dict[str, str]:
    """Field path to kio's name for the type of the field."""
    return dict(_walk_kinds(message_type, version, _find_entity(message_type, version), message_type.__name__))


def _walk_kinds(message_type: type[Message], version: int, entity: Any, path: str) -> Iterator[tuple[str, str]]:
    ours = [field for field in fields_of(message_type) if version in field.versions]
    hints = get_type_hints(entity)
    for field, theirs in zip(ours, dataclasses.fields(entity), strict=True):
        field_path = f"{path}.{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, Message):
            yield from _walk_kinds(field.type, version, _dataclass_in(hints[theirs.name]), field_path)
        else:
            nullable = "nullable " if type(None) in get_args(hints[theirs.name]) else ""
            yield field_path, nullable + theirs.metadata["kafka_type"]


def _dataclass_in(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next(found for argument in get_args(hint) if (found := _dataclass_in(argument)))


def _entity_to_plain(value: Any, kind: str | None = None) -> Plain:
    if dataclasses.is_dataclass(value):
        return tuple(
            _entity_to_plain(getattr(value, field.name), field.metadata.get("kafka_type"))
            for field in dataclasses.fields(value)
        )
    if isinstance(value, tuple):
        return tuple(_entity_to_plain(item, kind) for item in value)
    if value is None:
        return {"uuid": NO_UUID, "datetime_i64": -1}.get(kind or "")
    return _leaf_to_plain(value)


def _leaf_to_plain(value: Any) -> Plain:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    return value.value if isinstance(value, Enum) else value
