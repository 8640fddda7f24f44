"""Reads regular expressions of RE2's syntax, as KIP-848 prescribes it for subscriptions. Pure.

What needs backtracking (references to groups, looking around, possessive repetition) is no part of that syntax. Whether
a repetition is greedy makes no difference to what matches as a whole.
"""

import re

import msgspec

from quorate.groups.consumer import pattern_characters as characters
from quorate.groups.consumer.pattern_characters import Accepts
from quorate.groups.consumer.pattern_program import (
    Assertion,
    InvalidPattern,
    Part,
    alternatives,
    character,
    check,
    nothing,
    repetition,
    sequence,
)

_MAX_REPEAT = 1_000
_MAX_NESTING = 100
_COUNTED = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_GROUP_NAME = re.compile(r"\(\?P?<(\w+)>")
_HEXADECIMAL = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{2}")
_POSIX_NAME = re.compile(r"\[:(\^?\w+):\]")
_UNICODE_NAME = re.compile(r"[pP](?:(\w)|\{(\^?\w+)\})")
_CONTROL_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTION_ESCAPES = {
    "A": Assertion.START,
    "z": Assertion.END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}


class _Flags(msgspec.Struct, frozen=True, kw_only=True):
    ignores_case: bool = False
    dot_is_newline_too: bool = False


def parse_pattern(text: str) -> Part:
    """The pattern to be compiled; raises ``InvalidPattern``."""
    parser = _Parser(text)
    part = parser.alternatives(_Flags(), depth=0)
    if not parser.at_end:
        raise InvalidPattern("a ) without its (")
    return part


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._group_names: set[str] = set()

    @property
    def at_end(self) -> bool:
        return self._position == len(self._text)

    def alternatives(self, flags: _Flags, depth: int) -> Part:
        """Up to the end of the group or of the pattern. Flags that are set inside hold to that end."""
        if depth > _MAX_NESTING:
            raise InvalidPattern("groups are nested too deeply")
        branches: list[list[Part]] = [[]]
        while not self.at_end and self._text[self._position] != ")":
            if self._take("|"):
                branches.append([])
            elif (changed := self._flag_group(flags)) is not None:
                flags = changed
            else:
                self._append_repeated(branches[-1], flags, depth)
        return alternatives([sequence(branch) for branch in branches])

    def _append_repeated(self, branch: list[Part], flags: _Flags, depth: int) -> None:
        if self._take("\\Q"):
            *others, part = self._quoted(flags)
            branch += others
        elif self._text[self._position] in "*+?":
            raise InvalidPattern(f"nothing to repeat before {self._text[self._position]}")
        else:
            part = self._atom(flags, depth)
        bounds = self._repetition()
        if bounds is not None:
            part = repetition(part, *bounds)
            self._take("?")
            if self._position < len(self._text) and (self._text[self._position] in "*+?" or self._repetition()):
                raise InvalidPattern("a repetition of a repetition")
        branch.append(part)

    def _repetition(self) -> tuple[int, int | None] | None:
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(symbol):
                return bounds
        counted = _COUNTED.match(self._text, self._position)
        if counted is None:
            return None
        self._position = counted.end()
        least = int(counted[1])
        most = least if counted[2] is None else (int(counted[3]) if counted[3] else None)
        if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
            raise InvalidPattern(f"invalid repeat count {counted[0]}")
        return least, most

    def _atom(self, flags: _Flags, depth: int) -> Part:
        if self._text.startswith("(", self._position):
            return self._group(flags, depth)
        if self._text.startswith("[", self._position):
            return _one_of(self._bracket(), flags)
        if self._take("\\"):
            return self._escape(flags)
        symbol = self._next()
        match symbol:
            case ".":
                dot = characters.anything if flags.dot_is_newline_too else characters.anything_but_newline
                return character(dot)
            case "^":
                return check(Assertion.START)
            case "$":
                return check(Assertion.END)
            case _:
                return _one_of(characters.one(symbol), flags)

    def _flag_group(self, flags: _Flags) -> _Flags | None:
        """``(?i)``: flags for what follows."""
        found = _FLAGS.match(self._text, self._position)
        if found is None or found[3] != ")" or not (found[1] or found[2]):
            return None
        self._position = found.end()
        return _with_flags(flags, found[1], found[2])

    def _group(self, flags: _Flags, depth: int) -> Part:
        found = _FLAGS.match(self._text, self._position)
        if found is not None and found[3] == ":":
            flags = _with_flags(flags, found[1], found[2])
            self._position = found.end()
        elif (named := _GROUP_NAME.match(self._text, self._position)) is not None:
            if named[1] in self._group_names:
                raise InvalidPattern(f"two groups named {named[1]}")
            self._group_names.add(named[1])
            self._position = named.end()
        elif self._text.startswith("(?", self._position):
            raise InvalidPattern(f"invalid group {self._text[self._position : self._position + 4]}")
        else:
            self._position += 1
        part = self.alternatives(flags, depth + 1)
        if not self._take(")"):
            raise InvalidPattern("a ( without its )")
        return part

    def _quoted(self, flags: _Flags) -> list[Part]:
        end = self._text.find("\\E", self._position)
        literal = self._text[self._position : end] if end >= 0 else self._text[self._position :]
        self._position = end + 2 if end >= 0 else len(self._text)
        return [_one_of(characters.one(each), flags) for each in literal] or [nothing()]

    def _escape(self, flags: _Flags) -> Part:
        letter = self._text[self._position : self._position + 1]
        if letter in _ASSERTION_ESCAPES:
            self._position += 1
            return check(_ASSERTION_ESCAPES[letter])
        if letter == "C":
            self._position += 1
            return character(characters.anything)
        accepts = self._escaped_class()
        return _one_of(characters.one(self._escaped_character()) if accepts is None else accepts, flags)

    def _escaped_class(self) -> Accepts | None:
        """``\\d`` and its like, ``\\pN`` and its like; the backslash is behind us."""
        letter = self._text[self._position : self._position + 1]
        if letter and letter in "dDsSwW":
            self._position += 1
            return characters.perl_class(letter)
        found = _UNICODE_NAME.match(self._text, self._position)
        if found is None:
            return None
        accepts = characters.unicode_class(found[1] or found[2])
        if accepts is None:
            raise InvalidPattern(f"unknown character class \\{found[0]}")
        self._position = found.end()
        return characters.negated(accepts) if found[0][0] == "P" else accepts

    def _escaped_character(self) -> str:
        for numbered, base in ((_HEXADECIMAL, 16), (_OCTAL, 8)):
            found = numbered.match(self._text, self._position)
            if found is not None:
                self._position = found.end()
                code = int(next((group for group in found.groups() if group), found[0]), base)
                if code > 0x10FFFF:
                    raise InvalidPattern(f"no character has the code {code:#x}")
                return chr(code)
        if self.at_end:
            raise InvalidPattern("a \\ at the end")
        letter = self._next()
        if letter in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[letter]
        if letter.isascii() and not letter.isalnum():
            return letter
        raise InvalidPattern(f"invalid escape \\{letter}")

    def _bracket(self) -> Accepts:
        self._position += 1
        is_negated = self._take("^")
        sets: list[Accepts] = []
        while not sets or not self._take("]"):
            if self.at_end:
                raise InvalidPattern("a [ without its ]")
            sets.append(self._bracket_member())
        accepts = characters.union(sets)
        return characters.negated(accepts) if is_negated else accepts

    def _bracket_member(self) -> Accepts:
        posix = _POSIX_NAME.match(self._text, self._position)
        if posix is not None:
            accepts = characters.posix_class(posix[1])
            if accepts is None:
                raise InvalidPattern(f"unknown character class {posix[0]}")
            self._position = posix.end()
            return accepts
        low = self._bracket_end()
        if not isinstance(low, str):
            return low
        rest = self._text[self._position : self._position + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return characters.one(low)
        self._position += 1
        high = self._bracket_end()
        if not isinstance(high, str) or high < low:
            raise InvalidPattern(f"invalid range from {low}")
        return characters.between(low, high)

    def _bracket_end(self) -> str | Accepts:
        """A character that may begin or end a range, or a class of characters."""
        if not self._take("\\"):
            return self._next()
        accepts = self._escaped_class()
        return self._escaped_character() if accepts is None else accepts

    def _take(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self._position):
            return False
        self._position += len(symbol)
        return True

    def _next(self) -> str:
        symbol = self._text[self._position]
        self._position += 1
        return symbol


def _one_of(accepts: Accepts, flags: _Flags) -> Part:
    return character(characters.ignoring_case(accepts) if flags.ignores_case else accepts)


def _with_flags(flags: _Flags, switched_on: str, switched_off: str | None) -> _Flags:
    off = switched_off or ""
    return _Flags(
        ignores_case=("i" in switched_on or flags.ignores_case) and "i" not in off,
        dot_is_newline_too=("s" in switched_on or flags.dot_is_newline_too) and "s" not in off,
    )
