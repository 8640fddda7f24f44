"""A regular expression as a small program of characters, choices and assertions. Pure.

The program is Thompson's automaton: the matcher follows all choices at once, so no pattern takes more than linear time.
"""

from collections.abc import Callable
from enum import Enum

import msgspec

#: A bound on repeated repetitions such as (a{1000}){1000}, which would fill the memory.
MAX_INSTRUCTIONS = 20_000


class InvalidPattern(ValueError):
    """The text is no regular expression of RE2's syntax; the message says why."""


class Assertion(Enum):
    START = "start"
    END = "end"
    WORD_BOUNDARY = "word boundary"
    NO_WORD_BOUNDARY = "no word boundary"


class Character(msgspec.Struct):
    """Take one character that is in the set, and go on."""

    accepts: Callable[[str], bool]
    goto: int = -1


class Choice(msgspec.Struct):
    """Go on in both places."""

    first: int
    second: int = -1


class Check(msgspec.Struct):
    """Go on if the assertion holds between the last character and the next."""

    assertion: Assertion
    goto: int = -1


class Match(msgspec.Struct):
    """The whole pattern is matched."""


Instruction = Character | Choice | Check | Match

# What the parser builds: appends instructions whose last one leads to ``goto`` and returns where they start.
Part = Callable[["ProgramBuilder", int], int]


class ProgramBuilder:
    """Emits parts from the last to the first, so that each knows where it leads to."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def emit(self, instruction: Instruction) -> int:
        if len(self.instructions) >= MAX_INSTRUCTIONS:
            raise InvalidPattern("the expression is too large")
        self.instructions.append(instruction)
        return len(self.instructions) - 1


def nothing() -> Part:
    return lambda builder, goto: goto  # noqa: ARG005 - a part's signature


def character(accepts: Callable[[str], bool]) -> Part:
    return lambda builder, goto: builder.emit(Character(accepts, goto))


def check(assertion: Assertion) -> Part:
    return lambda builder, goto: builder.emit(Check(assertion, goto))


def sequence(parts: list[Part]) -> Part:
    def emit(builder: ProgramBuilder, goto: int) -> int:
        for part in reversed(parts):
            goto = part(builder, goto)
        return goto

    return emit


def alternatives(parts: list[Part]) -> Part:
    def emit(builder: ProgramBuilder, goto: int) -> int:
        start = parts[-1](builder, goto)
        for part in reversed(parts[:-1]):
            start = builder.emit(Choice(part(builder, goto), start))
        return start

    return emit


def repetition(part: Part, least: int, most: int | None) -> Part:
    """``most`` is None where there is no upper bound."""

    def emit(builder: ProgramBuilder, goto: int) -> int:
        if most is None:
            loop = Choice(-1, goto)
            start = builder.emit(loop)
            loop.first = part(builder, start)
        else:
            start = goto
            for _ in range(most - least):
                start = builder.emit(Choice(part(builder, start), goto))
        for _ in range(least):
            start = part(builder, start)
        return start

    return emit


def compile_program(part: Part) -> tuple[tuple[Instruction, ...], int]:
    """The instructions, and where they start."""
    builder = ProgramBuilder()
    start = part(builder, builder.emit(Match()))
    return tuple(builder.instructions), start
