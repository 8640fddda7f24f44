"""Sets of characters in regular expressions: ranges, Perl's and POSIX' classes, Unicode categories. Pure."""

import unicodedata
from collections.abc import Callable

Accepts = Callable[[str], bool]

_PERL = {
    "d": frozenset("0123456789"),
    "s": frozenset("\t\n\f\r "),
    "w": frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"),
}
_PRINTABLE = frozenset(map(chr, range(0x20, 0x7F)))
_LETTERS = frozenset(c for c in _PERL["w"] if c.isalpha())
_POSIX = {
    "alnum": _LETTERS | _PERL["d"],
    "alpha": _LETTERS,
    "ascii": frozenset(map(chr, range(0x80))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, range(0x20))) | {"\x7f"},
    "digit": _PERL["d"],
    "graph": _PRINTABLE - {" "},
    "lower": frozenset(c for c in _LETTERS if c.islower()),
    "print": _PRINTABLE,
    "punct": _PRINTABLE - {" "} - _LETTERS - _PERL["d"],
    "space": _PERL["s"] | {"\v"},
    "upper": frozenset(c for c in _LETTERS if c.isupper()),
    "word": _PERL["w"],
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_CATEGORIES = {category for code in range(0x500) for category in (unicodedata.category(chr(code)),)}
_MAJOR_CATEGORIES = {category[0] for category in _CATEGORIES}


def is_word_character(character: str) -> bool:
    return character in _PERL["w"]


def perl_class(letter: str) -> Accepts:
    """``\\d``, ``\\s``, ``\\w``; in upper case the opposite."""
    members = _PERL[letter.lower()]
    return members.__contains__ if letter.islower() else negated(members.__contains__)


def posix_class(name: str) -> Accepts | None:
    """``[:name:]`` or ``[:^name:]``; None where there is no such class."""
    members = _POSIX.get(name.removeprefix("^"))
    if members is None:
        return None
    return negated(members.__contains__) if name.startswith("^") else members.__contains__


def unicode_class(name: str) -> Accepts | None:
    """``\\p{name}`` or ``\\p{^name}`` for a general category; None where there is no such category."""
    category = name.removeprefix("^")
    if category == "Any":
        accepts: Accepts = anything
    elif category in _CATEGORIES or category in _MAJOR_CATEGORIES:
        accepts = lambda character: unicodedata.category(character).startswith(category)  # noqa: E731 - as its siblings
    else:
        return None
    return negated(accepts) if name.startswith("^") else accepts


def anything(character: str) -> bool:  # noqa: ARG001 - a set's signature
    return True


def anything_but_newline(character: str) -> bool:
    return character != "\n"


def one(wanted: str) -> Accepts:
    return wanted.__eq__


def between(low: str, high: str) -> Accepts:
    return lambda character: low <= character <= high


def union(sets: list[Accepts]) -> Accepts:
    return lambda character: any(accepts(character) for accepts in sets)


def negated(accepts: Accepts) -> Accepts:
    return lambda character: not accepts(character)


def ignoring_case(accepts: Accepts) -> Accepts:
    return lambda character: accepts(character) or accepts(character.lower()) or accepts(character.upper())
