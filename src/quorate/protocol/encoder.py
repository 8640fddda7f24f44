"""Specialises a function that encodes one message type in one version.

The function is flat, as the decoder's is. It collects small pieces and joins them once; records are handed through as
they are, between the joined pieces, so that the transport can write all of them without a copy.
"""

from collections.abc import Callable
from struct import Struct as Format
from struct import pack
from typing import Final

from quorate.kernel.ports import Buffer
from quorate.protocol import primitives
from quorate.protocol.schema import Field, Message, WireType
from quorate.protocol.source import FORMATS, SHORT_ARRAY, Layout, Source, short_array_formats

_MANY_PIECES: Final = 10_000

Encoder = Callable[[Message], list[Buffer]]

_NAMES: Final = {
    "ONE_BYTE": primitives.ONE_BYTE,
    "join": b"".join,
    "pack": pack,
    "refuse_string": primitives.refuse_string,
    "refuse_value": primitives.refuse_value,
    "write_unsigned_varint": primitives.write_unsigned_varint,
}


def specialise_encoder(message_type: type[Message], version: int, flexible: bool) -> Encoder:
    writer = _EncoderWriter(message_type.__name__, version, flexible)
    writer.source.line("buffers = []")
    writer.source.line("pieces = []")
    writer.source.line("append = pieces.append")
    writer.struct(message_type, "message", message_type.__name__)
    writer.flush()
    writer.source.line("buffers.append(join(pieces))")
    writer.source.line("return buffers")
    return writer.source.compile("encode", f"encoder of {message_type.__name__} version {version}")


class _EncoderWriter:
    """Writes statements that append fields one after the other.

    Fixed-width values wait in ``_run`` as (letter, expression) until something of variable width, or the end of a
    block, forces them out.
    """

    def __init__(self, message_name: str, version: int, flexible: bool) -> None:
        self.source = Source("encode(message)", _NAMES)
        self._message_name = message_name
        self._version = version
        self._flexible = flexible
        self._run: list[tuple[str, str]] = []
        self._append = "append"

    def struct(self, message_type: type[Message], name: str, path: str) -> None:
        layout = Layout(message_type, self._version)
        for field in layout.refused:
            with self.source.block(f"if {self._differs_from_default(field, f'{name}.{field.name}')}:"):
                self.source.line(f"refuse_value({self._message_name!r}, {f'{path}.{field.name}'!r}, {self._version})")
        for field in layout.plain:
            self.field(field, f"{name}.{field.name}", f"{path}.{field.name}")
        if self._flexible:
            self.tagged_fields(layout.tagged, name, path)

    def field(self, field: Field, expression: str, path: str) -> None:
        nullable = field.is_nullable(self._version)
        if field.is_array:
            self.array(field, expression, path, nullable)
        else:
            self.value(field, expression, path, nullable)

    def value(self, field: Field, expression: str, path: str, nullable: bool) -> None:
        match field.type:
            case WireType.STRING:
                self.string(expression, path, nullable)
            case WireType.BYTES:
                self.octets(expression, nullable)
            case WireType.RECORDS:
                self.records(expression, nullable)
            case WireType.UUID:
                self.fixed("16s", f"{expression}.int.to_bytes(16)")
            case WireType():
                self.fixed(FORMATS[field.type][0], expression)
            case message_type:
                value = self._assign("value", expression)
                if nullable:
                    self.nullable_struct(message_type, value, path)
                else:
                    self.struct(message_type, value, path)

    def fixed(self, letter: str, expression: str) -> None:
        self._run.append((letter, expression))

    def flush(self) -> None:
        if not self._run:
            return
        if self._run == [("B", "0")]:
            self.source.line(f"{self._append}(ONE_BYTE[0])")
            self._run.clear()
            return
        writer = Format(">" + "".join(letter for letter, _ in self._run)).pack
        arguments = ", ".join(expression for _, expression in self._run)
        self.source.line(f"{self._append}({self.source.constant('pack', writer)}({arguments}))")
        self._run.clear()

    def length(self, letter: str, name: str, string_path: str | None = None) -> None:
        """Write a length or count that stands in ``name`` as it is on the wire. A string's is limited."""
        if not self._flexible:
            self.fixed(letter, name)
            self.flush()
            return
        before = list(self._run)
        with self.source.block(f"if {name} < 128:"):
            if before:
                self.fixed("B", name)
                self.flush()
            else:
                self.source.line(f"{self._append}(ONE_BYTE[{name}])")
        self._run = before
        with self.source.block("else:"):
            if string_path:
                with self.source.block(f"if {name} > {primitives.MAX_STRING_BYTES + 1}:"):
                    self.source.line(f"refuse_string({string_path!r})")
            self.flush()
            self.source.line(f"{self._append}(write_unsigned_varint({name}))")

    def string(self, expression: str, path: str, nullable: bool) -> None:
        raw, length = self.source.new_name("raw"), self.source.new_name("length")
        measure = f"{length} = len({raw})" + (" + 1" if self._flexible else "")
        if nullable:
            value = self._assign("value", expression)
            with self.source.block(f"if {value} is None:"):
                self.source.line(f"{raw} = b''")
                self.source.line(f"{length} = {self._null}")
            with self.source.block("else:"):
                self.source.line(f"{raw} = {value}.encode()")
                self.source.line(measure)
        else:
            self.source.line(f"{raw} = {expression}.encode()")
            self.source.line(measure)
        self.length("h", length, string_path=path)
        self.source.line(f"{self._append}({raw})")

    def octets(self, expression: str, nullable: bool) -> None:
        value, length = self._measured(expression, nullable)
        self.length("i", length)
        with self.source.block(f"if {value}:"):
            self.source.line(f"{self._append}({value})")

    def records(self, expression: str, nullable: bool) -> None:
        value, length = self._assign("value", expression), self.source.new_name("length")
        chunks = self.source.new_name("chunks")
        extra = " + 1" if self._flexible else ""
        with self.source.block(f"if {value} is None:"):
            if nullable:
                self.source.line(f"{length} = {self._null}")
            else:
                self.source.line(f"raise TypeError({expression + ' cannot be null'!r})")
            self.source.line(f"{chunks} = ()")
        with self.source.block(f"elif type({value}) in (list, tuple):"):
            self.source.line(f"{chunks} = {value}")
            self.source.line(f"{length} = sum(map(len, {value})){extra}")
        with self.source.block("else:"):
            self.source.line(f"{length} = len({value}){extra}")
            self.source.line(f"{chunks} = ({value},) if {value} else ()")
        self.length("i", length)
        with self.source.block(f"if {chunks}:"):
            self.source.line("buffers.append(join(pieces))")
            self.source.line("pieces.clear()")
            self.source.line(f"buffers.extend({chunks})")

    def array(self, field: Field, expression: str, path: str, nullable: bool) -> None:
        value, length = self._measured(expression, nullable)
        self.length("i", length)
        with self.source.block(f"if {value}:"):
            if field.type in FORMATS and field.type is not WireType.UUID:
                self._fixed_elements(FORMATS[field.type][0], value)
                return
            item = self.source.new_name("item")
            with self.source.block(f"for {item} in {value}:"):
                self.value(field, item, path, nullable=False)
                self.flush()
                if self._append == "append":
                    self._join_many_pieces()

    def _join_many_pieces(self) -> None:
        """A piece takes many times the memory of its bytes."""
        with self.source.block(f"if len(pieces) > {_MANY_PIECES}:"):
            self.source.line("buffers.append(join(pieces))")
            self.source.line("pieces.clear()")

    def _fixed_elements(self, letter: str, value: str) -> None:
        count = self._assign("count", f"len({value})")
        writers = tuple(writer.pack for writer in short_array_formats(letter))
        short = f"{self.source.constant('short', writers)}[{count}](*{value})"
        long = f"pack(f'>{{{count}}}{letter}', *{value})"
        self.source.line(f"{self._append}({short} if {count} <= {SHORT_ARRAY} else {long})")

    def nullable_struct(self, message_type: type[Message], value: str, path: str) -> None:
        before = list(self._run)
        with self.source.block(f"if {value} is None:"):
            self.fixed("b", "-1")
            self.flush()
        self._run = before
        with self.source.block("else:"):
            self.fixed("b", "1")
            self.struct(message_type, value, path)
            self.flush()

    def tagged_fields(self, fields: list[Field], name: str, path: str) -> None:
        if not fields:
            self.fixed("B", "0")
            return
        values = [(field, self._assign("value", f"{name}.{field.name}")) for field in fields]
        conditions = [self._differs_from_default(field, value) for field, value in values]
        before = list(self._run)
        # Hardly ever is one of them set: then the section is one byte, written with what stands before it.
        with self.source.block(f"if {' or '.join(f'({condition})' for condition in conditions)}:"):
            self.flush()
            self._tags_that_are_set(list(zip(values, conditions, strict=True)), path)
        self._run = before
        with self.source.block("else:"):
            self.fixed("B", "0")
            self.flush()

    def _tags_that_are_set(self, fields: list[tuple[tuple[Field, str], str]], path: str) -> None:
        tags = self.source.new_name("tags")
        self.source.line(f"{tags} = []")
        for (field, value), condition in fields:
            with self.source.block(f"if {condition}:"):
                self._tagged_field(field, value, f"{path}.{field.name}", tags)
        self.source.line(f"{self._append}(ONE_BYTE[len({tags})])")
        self.source.line(f"{self._append}(join({tags}))")

    def _tagged_field(self, field: Field, value: str, path: str, tags: str) -> None:
        """Encode the field apart, as its size stands before it."""
        outer, self._append = self._append, self.source.new_name("append")
        body = self.source.new_name("body")
        self.source.line(f"{body} = []")
        self.source.line(f"{self._append} = {body}.append")
        self.field(field, value, path)
        self.flush()
        self._append = outer
        self.source.line(f"{body} = join({body})")
        tag = self.source.constant("tag", primitives.write_unsigned_varint(field.tag or 0))
        self.source.line(f"{tags}.append({tag} + write_unsigned_varint(len({body})) + {body})")

    def _assign(self, prefix: str, expression: str) -> str:
        """A name for the value of the expression, which may be one already."""
        if expression.isidentifier():
            return expression
        name = self.source.new_name(prefix)
        self.source.line(f"{name} = {expression}")
        return name

    def _measured(self, expression: str, nullable: bool) -> tuple[str, str]:
        """Names for the value of the expression and for its length as it stands on the wire."""
        value, length = self._assign("value", expression), self.source.new_name("length")
        measure = f"len({value})" + (" + 1" if self._flexible else "")
        if nullable:
            measure = f"{self._null} if {value} is None else {measure}"
        self.source.line(f"{length} = {measure}")
        return value, length

    def _differs_from_default(self, field: Field, expression: str) -> str:
        if field.default is None:
            return f"{expression} is not None"
        if field.is_array or field.type in (WireType.BYTES, WireType.RECORDS):
            return f"{expression} is None or len({expression})" if field.nullable else f"len({expression})"
        default = self.source.constant("default", field.default)
        return f"{expression} is not {default} and {expression} != {default}"

    @property
    def _null(self) -> int:
        return 0 if self._flexible else -1
