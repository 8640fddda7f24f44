"""JAAS configuration as Kafka's settings have it: one login module with its options.

``org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";``
No error shows the text, as it has passwords in it.
"""

import re
from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<word>[^\s="';]+)
      | (?P<equals>=)
      | (?P<end>;)
      | "(?P<double>(?:\\.|[^"\\])*)"
      | '(?P<single>(?:\\.|[^'\\])*)'
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_PASSWORDS_PREFIX: Final = "user_"


class JaasEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Shown without its options: they are secrets, most of them."""

    login_module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.login_module}, {len(self.options)} options)"

    @property
    def passwords(self) -> dict[str, str]:
        """Those of a PlainLoginModule on a listener: ``user_alice="secret"``."""
        return {
            key.removeprefix(_PASSWORDS_PREFIX): value
            for key, value in self.options.items()
            if key.startswith(_PASSWORDS_PREFIX)
        }


def parse_jaas(text: str, setting: str = "sasl.jaas.config") -> JaasEntry:
    """``setting`` is named where the text is no entry."""
    tokens = _tokens(text, setting)
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[1][0] != "word" or tokens[-1][0] != "end":
        raise QuorateError(f'{setting} is not of the form: module required option="value" ...;')
    module, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in _FLAGS:
        raise QuorateError(f"{setting}: after the login module comes one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise QuorateError(f'{setting}: an option is not of the form option="value", or there is more than one entry')
    for key, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if key[0] != "word" or equals[0] != "equals" or value[0] not in ("word", "text"):
            raise QuorateError(f'{setting}: an option is not of the form option="value"')
        if key[1] in options:
            raise QuorateError(f"{setting}: an option comes twice")
        options[key[1]] = value[1]
    return JaasEntry(login_module=module, options=options)


def _tokens(text: str, setting: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise QuorateError(f"{setting} has a quote without its other one")
        value = match[match.lastgroup]
        if match.lastgroup in ("double", "single"):
            tokens.append(("text", _ESCAPE.sub(r"\1", value)))
        else:
            tokens.append((match.lastgroup, value))
        position = match.end()
    return tokens
