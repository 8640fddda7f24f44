"""Topic patterns: which names match a regular expression as a whole, in time linear in the name. Pure.

The automaton's sets of states are made when a name first leads to them, and kept: a name costs a look-up per character.
"""

from collections.abc import Iterable
from functools import lru_cache

from quorate.groups.consumer.pattern_characters import is_word_character
from quorate.groups.consumer.pattern_program import (
    Assertion,
    Character,
    Check,
    Choice,
    Instruction,
    Match,
    compile_program,
)
from quorate.groups.consumer.pattern_syntax import parse_pattern
from quorate.kernel.ids import TopicName

# Where a name begins or ends, seen from the characters beside it.
_EDGE = ""
_MAX_KEPT_STEPS = 50_000

# The instructions that wait for a character, before assertions are looked at, and the character before them.
_State = tuple[frozenset[int], bool | None]


class TopicPattern:
    def __init__(self, text: str) -> None:
        """Raises ``InvalidPattern`` where the text is no regular expression."""
        self._instructions, start = compile_program(parse_pattern(text))
        self._start: _State = (frozenset((start,)), None)
        self._steps: dict[tuple[_State, str], _State] = {}

    def matches(self, name: str) -> bool:
        state = self._start
        for character in name:
            state = self._steps.get((state, character)) or self._step(state, character)
            if not state[0]:
                return False
        reached = self._follow(state, _EDGE)
        return any(isinstance(self._instructions[each], Match) for each in reached)

    def _step(self, state: _State, character: str) -> _State:
        following = set[int]()
        for each in self._follow(state, character):
            instruction = self._instructions[each]
            if isinstance(instruction, Character) and instruction.accepts(character):
                following.add(instruction.goto)
        if len(self._steps) >= _MAX_KEPT_STEPS:
            self._steps.clear()
        result = self._steps[(state, character)] = (frozenset(following), is_word_character(character))
        return result

    def _follow(self, state: _State, next_character: str) -> set[int]:
        """Everything that is reached without taking a character."""
        waiting, was_word = state
        seen: set[int] = set()
        open_ends = list(waiting)
        while open_ends:
            each = open_ends.pop()
            if each not in seen:
                seen.add(each)
                open_ends += _leads_to(self._instructions[each], was_word, next_character)
        return seen


def _leads_to(instruction: Instruction, was_word: bool | None, next_character: str) -> Iterable[int]:
    match instruction:
        case Choice(first, second):
            return first, second
        case Check(assertion, goto) if _holds(assertion, was_word, next_character):
            return (goto,)
        case _:
            return ()


def _holds(assertion: Assertion, was_word: bool | None, next_character: str) -> bool:
    """``was_word`` says whether the last character is one of a word; None at the start of the name."""
    is_boundary = bool(was_word) != (next_character != _EDGE and is_word_character(next_character))
    match assertion:
        case Assertion.START:
            return was_word is None
        case Assertion.END:
            return next_character == _EDGE
        case Assertion.WORD_BOUNDARY:
            return is_boundary
        case Assertion.NO_WORD_BOUNDARY:
            return not is_boundary


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> TopicPattern:
    """The pattern, kept for the next time; raises ``InvalidPattern``."""
    return TopicPattern(text)


def matching_topics(text: str, names: Iterable[TopicName]) -> frozenset[TopicName]:
    pattern = compile_pattern(text)
    return frozenset(name for name in names if pattern.matches(name))
