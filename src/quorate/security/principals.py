"""Principals: who a connection has shown to be, as ``type:name``, and how a certificate's subject becomes one.

The patterns of ``ssl.principal.mapping.rules`` are RE2's, which matches in linear time: subjects come from strangers.
Java's syntax is the same but for look-around and back references in the pattern, which no mapping needs.

Subjects are written as Java writes them (RFC 2253), so that rules mean the same as there. They are read only from
certificates that OpenSSL has accepted: these are well-formed DER.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import re2

from quorate.kernel.errors import QuorateError
from quorate.kernel.pattern import MAX_INSTRUCTIONS, MAX_TEXT_LENGTH

USER_TYPE: Final = "User"
#: Longer subjects are mapped by no rule.
MAX_SUBJECT_LENGTH: Final = 4_096

#: The attributes that RFC 2253 has a name for. Java writes any other as its number and the value's bytes.
_ATTRIBUTE_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: By the tag of a string's type.
_STRING_CODECS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_SPECIAL: Final = frozenset(',=+<>#;"\\')
_VERSION_TAG: Final = 0xA0


class KafkaPrincipal(msgspec.Struct, frozen=True, gc=False):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")


def user(name: str) -> KafkaPrincipal:
    return KafkaPrincipal(USER_TYPE, name)


def parse_principal(text: str) -> KafkaPrincipal:
    """``User:alice``. The name may have colons itself."""
    kind, separator, name = text.partition(":")
    if not separator or not kind or not name:
        raise QuorateError(f"{text!r} is no principal of the form type:name, as in User:alice")
    return KafkaPrincipal(kind, name)


def parse_super_users(text: str) -> frozenset[str]:
    """The value of ``super.users``: semicolons stand between principals, as commas are in subjects of certificates."""
    return frozenset(str(parse_principal(part.strip())) for part in text.split(";") if part.strip())


class PrincipalMapping:
    """``ssl.principal.mapping.rules``: the first rule whose pattern matches the whole subject gives the name."""

    def __init__(self, rules: Iterable["_Rule"], text: str) -> None:
        self._rules = tuple(rules)
        self._text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrincipalMapping) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def principal(self, subject: str) -> KafkaPrincipal | None:
        """None where no rule applies: then the connection is refused."""
        if len(subject) > MAX_SUBJECT_LENGTH:
            return None
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return user(name)
        return None


#: A rule: its own delimiters are escaped with a backslash.
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN_RULES: Final = " \t\r\n,"
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d{1,9})", re.DOTALL)


def parse_mapping_rules(text: str) -> PrincipalMapping:
    """The rules as Kafka writes them: ``RULE:^CN=(.*?),.*$/$1/L,DEFAULT``."""
    rules: list[_Rule] = []
    rest = text.lstrip(_BETWEEN_RULES)
    while rest:
        if rest.startswith("DEFAULT"):
            rules.append(_Rule(None, (), ""))
            rest = rest.removeprefix("DEFAULT")
        elif (match := _RULE.match(rest)) is not None:
            rules.append(_rule(*match.groups()))
            rest = rest[match.end() :]
        else:
            raise _unreadable(rest)
        if rest and not rest.lstrip().startswith(",") and not rest.isspace():
            raise _unreadable(rest)
        rest = rest.lstrip(_BETWEEN_RULES)
    return PrincipalMapping(rules or [_Rule(None, (), "")], text)


def _unreadable(rest: str) -> QuorateError:
    return QuorateError(
        f"ssl.principal.mapping.rules: {rest!r} is neither DEFAULT nor RULE:pattern/replacement/, /L or /U at its end"
    )


class _Rule:
    """Without a pattern it is DEFAULT: the subject itself is the name."""

    def __init__(self, pattern: Any, replacement: tuple[str | int, ...], case: str) -> None:
        self._pattern = pattern
        #: Pieces of text, and the numbers of groups.
        self._replacement = replacement
        self._case = case

    def apply(self, subject: str) -> str | None:
        if self._pattern is None:
            return subject
        match = self._pattern.fullmatch(subject)
        if match is None:
            return None
        name = "".join(part if isinstance(part, str) else match.group(part) or "" for part in self._replacement)
        match self._case:
            case "L":
                return name.lower()
            case "U":
                return name.upper()
            case _:
                return name


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    # A slash inside of a pattern comes with a backslash, which RE2 takes as Java does.
    if len(pattern) > MAX_TEXT_LENGTH:
        raise QuorateError(f"ssl.principal.mapping.rules: a pattern is longer than {MAX_TEXT_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2._Regexp(pattern, options)  # Past a cache, as these are kept.
    except re2.error as error:
        raise QuorateError(f"ssl.principal.mapping.rules: {pattern!r} is no pattern: {_reason(error)}") from None
    if compiled.programsize > MAX_INSTRUCTIONS:
        raise QuorateError(f"ssl.principal.mapping.rules: {pattern!r} is too complex")
    return _Rule(compiled, tuple(_parts(replacement, compiled.groups)), case)


def _parts(replacement: str, group_count: int) -> list[str | int]:
    r"""``$1`` is a group, ``\$`` a dollar. Of ``$12`` with fewer than 12 groups the 2 is text; so is ``$4`` with 3."""
    parts: list[str | int] = []
    position = 0
    for match in _REFERENCE.finditer(replacement):
        parts.append(replacement[position : match.start()])
        position = match.end()
        if match[1] is not None:
            parts.append(match[1])
            continue
        digits = match[2]
        while len(digits) > 1 and int(digits) > group_count:
            digits = digits[:-1]
        if int(digits) > group_count:
            parts.append(match[0])
        else:
            parts.append(int(digits))
            parts.append(match[2][len(digits) :])
    parts.append(replacement[position:])
    return [part for part in parts if part != ""]


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def subject_of(certificate: bytes) -> str:
    """Of a certificate in DER, as ``ssl.SSLSocket.getpeercert(binary_form=True)`` gives it: ``CN=alice,O=example``.

    Raises ValueError where it is none.
    """
    try:
        ((_, whole, _),) = _elements(certificate)
        _, to_be_signed, _ = next(_elements(whole))
        fields = [field for field in _elements(to_be_signed) if field[0] != _VERSION_TAG]
        # Serial number, algorithm, issuer, validity, subject.
        return ",".join(
            _relative_name(part) for part in reversed([content for _, content, _ in _elements(fields[4][1])])
        )
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("it is no certificate whose subject can be read") from error


def _relative_name(content: bytes) -> str:
    return "+".join(_attribute(attribute) for _, attribute, _ in _elements(content))


def _attribute(content: bytes) -> str:
    (_, number, _), (tag, value, encoded) = _elements(content)
    number_text = _object_id(number)
    name = _ATTRIBUTE_NAMES.get(number_text)
    if name is None or tag not in _STRING_CODECS:
        return f"{name or number_text}=#{encoded.hex()}"
    return f"{name}={_escaped(value.decode(_STRING_CODECS[tag]))}"


def _escaped(value: str) -> str:
    core = value.strip(" ")
    leading = len(value) - len(value.lstrip(" "))
    trailing = len(value) - len(core) - leading
    escaped = "".join("\\" + each if each in _SPECIAL else each for each in core)
    return "\\ " * leading + escaped + "\\ " * trailing


def _elements(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each element's tag, its content, and all of it as it is encoded."""
    position = 0
    while position < len(content):
        start = position
        tag, length = content[position], content[position + 1]
        position += 2
        if length & 0x80:
            width = length & 0x7F
            length = int.from_bytes(content[position : position + width])
            position += width
        end = position + length
        if end > len(content):
            raise IndexError("an element is longer than what it is in")
        yield tag, content[position:end], content[start:end]
        position = end


def _object_id(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:]))
