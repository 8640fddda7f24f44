"""The columns of the data source: their names and types, and how Arrow batches are made of scanned records.

pyarrow is loaded where a batch is made, since the driver's side does without it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from quorate.records.columnar import BinaryColumn, RecordColumns

if TYPE_CHECKING:
    import pyarrow

#: In the order in which they come. The names are those of Spark's own Kafka source, but for timestamp_type; so are
#: the types.
COLUMN_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
COLUMN_NAMES: Final = tuple(COLUMN_TYPES)


def schema_ddl(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {COLUMN_TYPES[name]}" for name in names)


class ArrowRows:
    """Makes Arrow batches with the wanted columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._schema = arrow_schema(names)

    def batch(self, topic: str, partition: int, columns: RecordColumns) -> "pyarrow.RecordBatch":
        import pyarrow

        arrays = [_ARRAYS[name](topic, partition, columns) for name in self._names]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_schema(names: Sequence[str]) -> "pyarrow.Schema":
    import pyarrow

    header = pyarrow.struct([pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())])
    types = {
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "timestamp_type": pyarrow.int32(),
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "headers": pyarrow.list_(pyarrow.field("element", header)),
    }
    return pyarrow.schema([pyarrow.field(name, types[name]) for name in names])


def _topic(topic: str, _: int, columns: RecordColumns) -> "pyarrow.Array":
    import pyarrow

    return pyarrow.repeat(topic, columns.row_count)


def _partition(_: str, partition: int, columns: RecordColumns) -> "pyarrow.Array":
    import pyarrow

    return pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), columns.row_count)


def _offset(_: str, __: int, columns: RecordColumns) -> "pyarrow.Array":
    import pyarrow

    return _numbers(pyarrow.int64(), columns.row_count, None, columns.offsets)


def _timestamp(_: str, __: int, columns: RecordColumns) -> "pyarrow.Array":
    import pyarrow

    kind = pyarrow.timestamp("us", tz="UTC")
    return _numbers(kind, columns.row_count, columns.timestamp_validity, columns.timestamps)


def _timestamp_type(_: str, __: int, columns: RecordColumns) -> "pyarrow.Array":
    import pyarrow

    return _numbers(pyarrow.int32(), columns.row_count, columns.timestamp_type_validity, columns.timestamp_types)


def _key(_: str, __: int, columns: RecordColumns) -> "pyarrow.Array":
    return _binary(columns.row_count, columns.keys)


def _value(_: str, __: int, columns: RecordColumns) -> "pyarrow.Array":
    return _binary(columns.row_count, columns.values)


def _headers(_: str, __: int, columns: RecordColumns) -> "pyarrow.Array":
    import pyarrow

    kind = arrow_schema(["headers"]).field(0).type
    keys = _text(columns.header_count, columns.header_keys)
    values = _binary(columns.header_count, columns.header_values)
    pairs = pyarrow.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    ends = pyarrow.py_buffer(columns.header_ends)
    return pyarrow.Array.from_buffers(kind, columns.row_count, [None, ends], children=[pairs])


_ARRAYS: Final[dict[str, Callable[[str, int, RecordColumns], Any]]] = {
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestamp_type": _timestamp_type,
    "key": _key,
    "value": _value,
    "headers": _headers,
}


def _numbers(kind: Any, count: int, validity: Any, data: Any) -> Any:
    import pyarrow

    return pyarrow.Array.from_buffers(kind, count, [_buffer(validity), pyarrow.py_buffer(data)])


def _binary(count: int, column: BinaryColumn) -> Any:
    import pyarrow

    buffers = [_buffer(column.validity), pyarrow.py_buffer(column.ends), pyarrow.py_buffer(column.data)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)


def _text(count: int, column: BinaryColumn) -> Any:
    """Kafka's header keys are UTF-8. Where a producer sent other bytes, they are replaced as Java's consumer does."""
    import pyarrow

    if not count:
        return pyarrow.array([], pyarrow.string())
    found = _binary(count, column)
    try:
        return found.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        return pyarrow.array([key.decode("utf-8", "replace") for key in found.to_pylist()], pyarrow.string())


def _buffer(data: Any) -> Any:
    import pyarrow

    return None if data is None else pyarrow.py_buffer(data)
