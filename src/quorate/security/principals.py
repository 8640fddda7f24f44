"""Principals: who a connection has shown to be, as ``type:name``, and how a certificate's subject becomes one.

The patterns of ``ssl.principal.mapping.rules`` are RE2's, which matches in linear time: subjects come from strangers.
Java's syntax is the same but for look-around and back references in the pattern, which no mapping needs.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import re2

from quorate.kernel.errors import QuorateError
from quorate.kernel.pattern import MAX_INSTRUCTIONS, MAX_TEXT_LENGTH

USER_TYPE: Final = "User"
#: Longer subjects are mapped by no rule.
MAX_SUBJECT_LENGTH: Final = 4_096


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

    def __init__(self, rules: Iterable["_Rule"]) -> None:
        self._rules = tuple(rules)

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
    return PrincipalMapping(rules or [_Rule(None, (), "")])


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
