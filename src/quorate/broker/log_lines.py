"""Log records as lines: one record is one line, whatever a client, a peer or a file has said in it.

What is put into a message may have come from anybody. So every control character is escaped here, at the edge, and long
texts are clipped; nobody who logs has to think of it. Only a traceback has more lines, each of them indented.
"""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from quorate.kernel.errors import MOST_CHARACTERS, clip

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
#: Of a message, and of a traceback.
MOST_OF_A_MESSAGE = 8000
_INDENT = "    "
#: What moves a terminal's cursor, ends a line for some reader, turns the direction of text, or is half a character.
_UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: A ``key=%s`` of a message, or any other directive, so that they are counted alike.
_DIRECTIVE = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_.]*)=)?%(?:%|[-#0 +]*\d*(?:\.\d+)?([a-zA-Z]))")


def escape(text: str) -> str:
    """On one line, and nothing in it that a terminal would obey."""
    return _UNPRINTABLE.sub(_escape_one, text)


class LineFormatter(logging.Formatter):
    """Text, for people and ``grep``."""

    def format(self, record: logging.LogRecord) -> str:
        # Other handlers get the same record: it is left as it is.
        shown = logging.makeLogRecord({**record.__dict__, "exc_text": None})
        shown.msg, shown.args = message_of(record), None
        return super().format(shown)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging has given it
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """An object a line, for what collects logs. ``fields`` has the values of the message's ``key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
        }
        fields = fields_of(record)
        if fields:
            shown["fields"] = fields
        if record.exc_info:
            shown["exception"] = clip(self.formatException(record.exc_info), MOST_OF_A_MESSAGE)
        return json.dumps(shown)


def message_of(record: logging.LogRecord) -> str:
    """The message with its values, on one line."""
    try:
        message = str(record.msg) % _clipped(record.args) if record.args else str(record.msg)
    except (TypeError, ValueError, KeyError):
        message = f"{record.msg} {record.args}"  # Whoever logs made a mistake; the line still tells what it can.
    return escape(clip(message, MOST_OF_A_MESSAGE))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """By their keys, as far as the message has ``key=`` before its values."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    directives = [found for found in _DIRECTIVE.finditer(record.msg) if found[2]]
    if len(directives) != len(record.args):
        return {}
    values = zip(directives, record.args, strict=True)
    return {found[1]: _json_value(value) for found, value in values if found[1]}


def _json_value(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and value - value == 0:  # JSON has no infinity.
        return value
    return clip(str(value))


def _clipped(args: Any) -> Any:
    if isinstance(args, Mapping):
        return {key: _clip_value(value) for key, value in args.items()}
    return tuple(map(_clip_value, args))


def _clip_value(value: object) -> object:
    """Numbers and the like stay what they are, for the sake of their formats."""
    if isinstance(value, str | bytes | BaseException | list | tuple | dict | set | frozenset):
        text = str(value)
        return clip(text) if len(text) > MOST_CHARACTERS else value
    return value


def _indented(text: str) -> str:
    lines = clip(text, MOST_OF_A_MESSAGE).split("\n")
    return "\n".join(_INDENT + escape(line) for line in lines)


def _escape_one(found: re.Match[str]) -> str:
    character = found[0]
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
