"""Regular expressions that clients send: RE2, which KIP-848 and KIP-1152 prescribe, within a budget.

RE2 matches in time linear in the name, but the factor is the size of the compiled program, and compiling takes time of
its own. So the text of a pattern is bounded before it is compiled, and its program afterwards.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import re2

#: Longer texts, and more of what is large when it is compiled, take more than a few milliseconds to compile.
MAX_TEXT_LENGTH = 4_096
MAX_REPEATS = 1_000
MAX_UNICODE_CLASSES = 64
#: Of a compiled program: each character of a name costs at most a look at each instruction. ``\pL`` alone has 1,200.
MAX_INSTRUCTIONS = 4_000
#: For the program and the states that are kept between names; RE2 does without states when there are too many.
_MAX_MEMORY_BYTES = 2 << 20
_KEPT_PATTERNS = 8

_COUNTED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_UNICODE_CLASS = re.compile(r"\\[pP]")


class InvalidPattern(ValueError):
    """The text is no regular expression of RE2's syntax, or more than this node is ready to match; says why."""


class Pattern:
    """Matches whole names. May be used in a worker thread: names are matched without the interpreter's lock."""

    def __init__(self, text: str) -> None:
        """Raises ``InvalidPattern``."""
        _check_size(text)
        options = re2.Options()
        options.max_mem = _MAX_MEMORY_BYTES
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2._Regexp(text.encode(), options)  # Past a cache that keeps 128 of them.
        except re2.error as error:
            raise InvalidPattern(_reason(error)) from None
        except UnicodeEncodeError:
            raise InvalidPattern("it is not valid Unicode") from None
        if self._compiled.programsize > MAX_INSTRUCTIONS:
            raise InvalidPattern(f"it is too complex: {self._compiled.programsize} steps, of {MAX_INSTRUCTIONS}")

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name.encode()) is not None

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))


def _check_size(text: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidPattern(f"it is longer than {MAX_TEXT_LENGTH} characters")
    if sum(max(int(least), int(most or 0)) for least, most in _COUNTED.findall(text)) > MAX_REPEATS:
        raise InvalidPattern(f"its repetitions add up to more than {MAX_REPEATS}")
    if len(_UNICODE_CLASS.findall(text)) > MAX_UNICODE_CLASSES:
        raise InvalidPattern(f"it has more than {MAX_UNICODE_CLASSES} Unicode classes")


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def compile_pattern(text: str) -> Pattern:
    """The pattern, kept for the next time; raises ``InvalidPattern``."""
    outcome = _outcome(text)
    if isinstance(outcome, str):
        raise InvalidPattern(outcome)
    return outcome


@lru_cache(maxsize=_KEPT_PATTERNS)
def _outcome(text: str) -> Pattern | str:
    """Or why there is none: asking again for an invalid pattern is as cheap as for a valid one."""
    try:
        return Pattern(text)
    except InvalidPattern as error:
        return str(error)
