"""Kafka's ``client.properties``: Java's format, read and written, with secrets that stand elsewhere.

``${NAME}`` is a variable of the environment and ``${file:/path}`` what a file holds, without the line end. In a login
module's options it is one value, whatever is in it. No error shows a value.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from quorate.kernel.errors import QuorateError

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_BLANKS: Final = " \t\f"
_REFERENCE: Final = re.compile(r"\$\{(file:)?([^${}]+)\}")
JAAS_KEY: Final = "sasl.jaas.config"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_properties(text: str) -> dict[str, str]:
    """The last value of a key counts, as in Java."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        if not key:
            raise QuorateError(f"line {number} of the properties has no key before its value")
        properties[_unescaped(key, number)] = _unescaped(value, number)
    return properties


def write_properties(properties: Mapping[str, str], comment: str = "") -> str:
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{_escaped(key, is_key=True)}={_escaped(value, is_key=False)}" for key, value in properties.items()]
    return "\n".join(lines) + "\n"


def resolve_references(
    properties: Mapping[str, str], variables: Mapping[str, str], read_file: Callable[[str], str]
) -> dict[str, str]:
    """The same with ``${...}`` replaced, once: what comes of it is not looked into again."""
    return {key: _resolved(key, value, variables, read_file) for key, value in properties.items()}


def _resolved(key: str, value: str, variables: Mapping[str, str], read_file: Callable[[str], str]) -> str:
    is_option = key.endswith(JAAS_KEY) and _REFERENCE.fullmatch(value.strip()) is None

    def replacement(match: re.Match[str]) -> str:
        found = referred(match)
        return login_module_value(found, is_bare=value[: match.start()].endswith("=")) if is_option else found

    def referred(match: re.Match[str]) -> str:
        is_file, name = match[1] is not None, match[2]
        if not is_file:
            if _VARIABLE.fullmatch(name) is None:
                raise QuorateError(f"{key}: ${{...}} names neither a variable nor a file, as in ${{file:/path}}")
            if name not in variables:
                raise QuorateError(f"{key}: the environment has no variable {name}")
            return variables[name]
        try:
            return read_file(name).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise QuorateError(f"{key}: {name} cannot be read: {getattr(error, 'strerror', 'no text')}") from None

    return _REFERENCE.sub(replacement, value)


def login_module_value(text: str, *, is_bare: bool) -> str:
    """What stands between the quotes of a login module's option; with quotes of its own where there are none."""
    escaped = re.sub(r"""([\\"'])""", r"\\\1", text)
    return f'"{escaped}"' if is_bare else escaped


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that end in a backslash go on with the next one."""
    begun: list[str] = []
    first = 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        content = line.lstrip(_BLANKS)
        if not begun:
            if not content or content[0] in "#!":
                continue
            first = number
        if (len(content) - len(content.rstrip("\\"))) % 2:
            begun.append(content[:-1])
            continue
        yield first, "".join([*begun, content])
        begun = []
    if begun:
        yield first, "".join(begun)


def _split(line: str) -> tuple[str, str]:
    """The key ends at the first equals sign, colon or blank that has no backslash before it."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescaped(text: str, number: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise QuorateError(f"line {number} of the properties has a \\u without four hexadecimal digits")
        return _ESCAPED.get(match[2], match[2])

    # Characters beyond the first 65,536 are two escapes in Java's notation.
    return _ESCAPE.sub(replacement, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(text: str, *, is_key: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        escaped = re.sub(r"([ =:#!])", r"\\\1", escaped)
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    return _NOT_ASCII.sub(_unicode_escape, escaped)


def _unicode_escape(match: re.Match[str]) -> str:
    """Java reads such files as ISO 8859-1."""
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
