"""Specialises a function that decodes one message type in one version.

The function is flat: nested structs become loops, neighbouring fields of fixed width are read with one ``unpack_from``
together with the length that follows them, and a varint of one byte costs no call. Every length is checked against
what is left in the frame before anything is made from it, and the elements of all arrays against a budget: a few
megabytes can hold millions of elements, which take seconds and hundreds of megabytes to make.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from struct import Struct as Format
from struct import unpack_from
from typing import Final

from quorate.kernel.ports import Buffer
from quorate.protocol import primitives
from quorate.protocol.schema import Field, Message, WireType
from quorate.protocol.source import (
    FORMATS,
    SHORT_ARRAY,
    Layout,
    Source,
    carries_records,
    minimal_element_size,
    short_array_formats,
)

Decoder = Callable[[Buffer, int, int], tuple[Message, int]]
"""From a frame, a position in it and a budget of elements to the message and the position after it."""

_NAMES: Final = {
    "unpack_from": unpack_from,
    "read_unsigned_varint": primitives.read_unsigned_varint,
    "read_uuid": primitives.read_uuid,
    "skip_tagged_fields": primitives.skip_tagged_fields,
    "refuse_elements": primitives.refuse_elements,
    "refuse_length": primitives.refuse_length,
    "refuse_null_marker": primitives.refuse_null_marker,
    "refuse_string": primitives.refuse_string,
    "refuse_tag": primitives.refuse_tag,
}


def specialise_decoder(message_type: type[Message], version: int, flexible: bool) -> Decoder:
    # Bytes are quickest to read, but records must stay in the frame's own memory.
    in_place = carries_records(message_type)
    buffer_type = "memoryview" if in_place else "bytes"
    writer = _DecoderWriter(version, flexible, in_place)
    with writer.source.block(f"if type(frame) is not {buffer_type}:"):
        writer.source.line(f"frame = {buffer_type}(frame)")
    writer.source.line("end = len(frame)")
    result = writer.struct(message_type, message_type.__name__)
    writer.flush()
    writer.source.line(f"return {result}, position")
    return writer.source.compile("decode", f"decoder of {message_type.__name__} version {version}")


class _DecoderWriter:
    """Writes statements that read fields one after the other.

    Fixed-width values wait in ``_run`` until something of variable width, or the end of a block, forces them out.
    """

    def __init__(self, version: int, flexible: bool, in_place: bool) -> None:
        self.source = Source("decode(frame, position, budget)", _NAMES)
        self._version = version
        self._flexible = flexible
        self._text = "frame[position:stop].tobytes().decode()" if in_place else "frame[position:stop].decode()"
        self._run: list[tuple[str, str, int]] = []

    def struct(self, message_type: type[Message], path: str) -> str:
        """Read a struct; the expression that makes it."""
        layout = Layout(message_type, self._version)
        values = [(field, self.field(field, f"{path}.{field.name}")) for field in layout.plain]
        if self._flexible:
            values += self.tagged_fields(layout.tagged, path)
        self.flush()
        arguments = ", ".join(f"{field.name}={value}" for field, value in values)
        return f"{self.source.constant('Type', message_type)}({arguments})"

    def field(self, field: Field, path: str) -> str:
        """Read one field; the name of its value, or an expression that makes it."""
        nullable = field.is_nullable(self._version)
        if field.is_array:
            return self.array(field, path, nullable)
        return self.value(field, path, nullable)

    def value(self, field: Field, path: str, nullable: bool) -> str:
        match field.type:
            case WireType.STRING:
                return self.string(path, nullable)
            case WireType.BYTES:
                return self.octets(path, nullable, "bytes(frame[position:stop])")
            case WireType.RECORDS:
                return self.octets(path, nullable, "frame[position:stop]")
            case WireType.UUID:
                return f"read_uuid({self.fixed('16s', 16)})"
            case WireType():
                return self.fixed(*FORMATS[field.type])
            case message_type if nullable:
                return self.nullable_struct(message_type, path)
            case message_type:
                return self.struct(message_type, path)

    def fixed(self, letter: str, width: int) -> str:
        name = self.source.new_name("v")
        self._run.append((name, letter, width))
        return name

    def flush(self) -> None:
        """Emit the one read that fetches all waiting fixed-width values."""
        if not self._run:
            return
        width = sum(width for _, _, width in self._run)
        if [letter for _, letter, _ in self._run] == ["B"]:
            self.source.line(f"{self._run[0][0]} = frame[position]")
        else:
            reader = Format(">" + "".join(letter for _, letter, _ in self._run)).unpack_from
            targets = ", ".join(name for name, _, _ in self._run)
            self.source.line(f"{targets}, = {self.source.constant('unpack', reader)}(frame, position)")
        self.source.line(f"position += {width}")
        self._run.clear()

    def length(self, letter: str, width: int, string_path: str | None = None) -> str:
        """Read a length or count as it is on the wire: signed, or one more as a varint. A string's is limited."""
        if not self._flexible:
            name = self.fixed(letter, width)
            self.flush()
            return name
        name = self.fixed("B", 1)
        self.flush()
        with self.source.block(f"if {name} > 127:"):
            self.source.line(f"{name}, position = read_unsigned_varint(frame, position - 1)")
            if string_path:
                with self.source.block(f"if {name} > {primitives.MAX_STRING_BYTES + 1}:"):
                    self.source.line(f"refuse_string({string_path!r})")
        return name

    @property
    def _null(self) -> int:
        return 0 if self._flexible else -1

    def string(self, path: str, nullable: bool) -> str:
        length = self.length("h", 2, string_path=path)
        value = self.source.new_name("v")
        with self._unless_null(value, length, nullable):
            self._stop_after(length, path)
            self.source.line(f"{value} = {self._text}")
            self.source.line("position = stop")
        return value

    def octets(self, path: str, nullable: bool, expression: str) -> str:
        length = self.length("i", 4)
        value = self.source.new_name("v")
        with self._unless_null(value, length, nullable):
            self._stop_after(length, path)
            self.source.line(f"{value} = {expression}")
            self.source.line("position = stop")
        return value

    def array(self, field: Field, path: str, nullable: bool) -> str:
        count = self.length("i", 4)
        value = self.source.new_name("v")
        with self._unless_null(value, count, nullable):
            if self._flexible:
                self.source.line(f"{count} -= 1")
            smallest = minimal_element_size(field, self._version, self._flexible)
            room = "end - position" if smallest == 1 else f"(end - position) // {smallest}"
            with self.source.block(f"if not 0 <= {count} <= {room}:"):
                self.source.line(f"refuse_length({path!r}, {count})")
            self.source.line(f"budget -= {count}")
            with self.source.block("if budget < 0:"):
                self.source.line(f"refuse_elements({path!r})")
            if field.type in FORMATS and field.type is not WireType.UUID:
                self._fixed_elements(*FORMATS[field.type], value, count)
            else:
                self._elements(field, path, value, count)
        return value

    def _fixed_elements(self, letter: str, width: int, value: str, count: str) -> None:
        readers = tuple(reader.unpack_from for reader in short_array_formats(letter))
        short = f"{self.source.constant('short', readers)}[{count}](frame, position)"
        long = f"unpack_from(f'>{{{count}}}{letter}', frame, position)"
        self.source.line(f"{value} = {short} if {count} <= {SHORT_ARRAY} else {long}")
        self.source.line(f"position += {count} * {width}")

    def _elements(self, field: Field, path: str, value: str, count: str) -> None:
        items = self.source.new_name("items")
        self.source.line(f"{items} = []")
        with self.source.block(f"for _ in range({count}):"):
            element = self.value(field, path, nullable=False)
            self.flush()
            self.source.line(f"{items}.append({element})")
        self.source.line(f"{value} = tuple({items})")

    def nullable_struct(self, message_type: type[Message], path: str) -> str:
        marker = self.fixed("b", 1)
        self.flush()
        value = self.source.new_name("v")
        with self.source.block(f"if {marker} == -1:"):
            self.source.line(f"{value} = None")
        with self.source.block(f"elif {marker} == 1:"):
            self.source.line(f"{value} = {self.struct(message_type, path)}")
        with self.source.block("else:"):
            self.source.line(f"refuse_null_marker({path!r}, {marker})")
        return value

    def tagged_fields(self, fields: list[Field], path: str) -> list[tuple[Field, str]]:
        """Read the section that ends a flexible struct; unknown tags are skipped."""
        count = self.fixed("B", 1)
        self.flush()
        if not fields:
            with self.source.block(f"if {count}:"):
                self.source.line("position = skip_tagged_fields(frame, position - 1)")
            return []
        values = [(field, self.source.new_name("v")) for field in fields]
        for field, value in values:
            self.source.line(f"{value} = {self.source.constant('default', field.default)}")
        tag, previous, stop = (self.source.new_name(prefix) for prefix in ("tag", "previous", "stop"))
        with self.source.block(f"if {count}:"):
            self.source.line(f"{count}, position = read_unsigned_varint(frame, position - 1)")
            self.source.line(f"{previous} = -1")
            with self.source.block(f"for _ in range({count}):"):
                self.source.line(f"{tag}, position = read_unsigned_varint(frame, position)")
                self.source.line(f"{stop}, position = read_unsigned_varint(frame, position)")
                self.source.line(f"{stop} += position")
                with self.source.block(f"if {tag} <= {previous} or {stop} > end:"):
                    self.source.line(f"refuse_tag({tag})")
                self.source.line(f"{previous} = {tag}")
                self._tag_branches(values, path, tag, stop)
                with self.source.block(f"if position != {stop}:"):
                    self.source.line(f"refuse_tag({tag})")
        return values

    def _tag_branches(self, values: list[tuple[Field, str]], path: str, tag: str, stop: str) -> None:
        keyword = "if"
        for field, value in values:
            with self.source.block(f"{keyword} {tag} == {field.tag}:"):
                expression = self.field(field, f"{path}.{field.name}")
                self.flush()
                self.source.line(f"{value} = {expression}")
            keyword = "elif"
        with self.source.block("else:"):
            self.source.line(f"position = {stop}")

    def _unless_null(self, value: str, length: str, nullable: bool) -> AbstractContextManager[None]:
        """Open the branch for a value that is there, after that for null where it is allowed."""
        if not nullable:
            return nullcontext()
        with self.source.block(f"if {length} == {self._null}:"):
            self.source.line(f"{value} = None")
        return self.source.block("else:")

    def _stop_after(self, length: str, path: str) -> None:
        self.source.line(f"stop = position + {length}" + (" - 1" if self._flexible else ""))
        with self.source.block("if not position <= stop <= end:"):
            self.source.line(f"refuse_length({path!r}, {length})")
