"""Hypothesis strategies for messages, derived from their schemas."""

from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from quorate.protocol.schema import Field, Message, WireType, fields_of
from tests.unit.protocol.samples import INTEGER_RANGES

_LEAVES: dict[WireType, st.SearchStrategy[Any]] = {
    WireType.BOOL: st.booleans(),
    WireType.FLOAT64: st.floats(allow_nan=False),
    WireType.UUID: st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
    WireType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=150),
    WireType.BYTES: st.binary(max_size=150),
    WireType.RECORDS: st.binary(max_size=150),
} | {wire_type: st.integers(*limits) for wire_type, limits in INTEGER_RANGES.items()}


@cache
def messages(message_type: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Any message that the version can carry. Fields that it lacks, and some that it has, keep their defaults."""
    values = {field.name: _field(field, version) for field in fields_of(message_type) if version in field.versions}
    return st.fixed_dictionaries({}, optional=values).map(lambda chosen: message_type(**chosen))


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    value = _LEAVES[field.type] if isinstance(field.type, WireType) else messages(field.type, version)
    if field.is_array:
        value = st.lists(value, max_size=3).map(tuple)
    return st.none() | value if field.is_nullable(version) else value
