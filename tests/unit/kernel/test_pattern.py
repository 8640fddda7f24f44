"""Patterns of clients: RE2's syntax, whole names, and linear time for everything."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.pattern import InvalidPattern, Pattern, _outcome, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders.eu", "my-orders", ""]),
        ("orders.*", ["orders", "orders.eu"], ["my-orders"]),
        (r"orders\..+", ["orders.eu"], ["orders.", "orders-eu"]),
        ("a|bc|", ["a", "bc", ""], ["ab"]),
        ("(?:eu|us)-[0-9]{2,3}", ["eu-12", "us-123"], ["eu-1", "us-1234", "eu-1a"]),
        ("[^a-c_]+", ["xyz", "-"], ["xaz", "_"]),
        ("[]a-]+", ["]a-"], ["b"]),
        (r"[\w.-]+", ["a_b.C-9"], ["a b"]),
        (r"[[:upper:][:digit:]]+", ["A1"], ["a1"]),
        (r"[[:^digit:]]", ["a"], ["1"]),
        (r"\pL+\p{Nd}\PN", ["ab1c"], ["ab12"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("a(?i:b)c", ["abc", "aBc"], ["Abc", "abC"]),
        ("(?P<place>eu|us)", ["eu"], ["xx"]),
        ("(?<place>eu|us)", ["us"], ["xx"]),
        (r"^\Aorders\z$", ["orders"], ["orders1"]),
        (r".*\bnew\b.*", ["a.new.b", "new"], ["renew", "news"]),
        (r"x\B.", ["xy"], ["x-"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb*"]),
        (r"\x61\x{62}\143", ["abc"], ["ab"]),
        ("a{2}b{0}c{1,}", ["aac", "aaccc"], ["ac", "aabc"]),
        ("a{", ["a{"], ["a"]),
        ("a*?b+?c??", ["aab", "b", "bc"], ["a"]),
        ("(a*)*", ["", "aaa"], ["b"]),
    ],
)
def test_names_that_match_as_a_whole(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)

    assert [name for name in matching + others if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "[", "[a", "[z-a]", "[[:nothing:]]", "*", "+a", "a**", "a{2}{3}", "a{3,2}", "a{1001}",
        "(a{1000}){1000}", "\\", r"\1", r"(a)\1", r"\k", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?P=name)",
        r"\p{Nothing}", r"\x{110000}", "(" * 2_000,
    ],
)  # fmt: skip
def test_what_is_no_pattern_of_re2_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\.", "-", "(?:a|b)", "(ab)"])
repeated = st.builds(lambda atom, times: atom + times, atoms, st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}"]))
assertions = st.sampled_from([r"\b", r"\B", "^", "$"])
patterns = st.lists(st.lists(repeated | assertions, max_size=4).map("".join), min_size=1, max_size=3).map("|".join)


@given(pattern=patterns, name=st.text("ab.-_", min_size=1, max_size=8))
def test_plain_patterns_match_what_python_matches(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@given(text=st.text(max_size=30))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    with suppress(InvalidPattern):
        Pattern(text).matches("orders")


def test_a_pattern_that_would_make_others_backtrack_forever_takes_a_moment() -> None:
    assert not Pattern("(x+x+)+y|(a|aa)+b").matches("x" * 249)


@pytest.mark.parametrize(
    "pattern",
    [
        "((.?){1000}){9}x",
        "[xy]{0,1000}" * 20,
        "(x?)" * 8_000,
        r"(?i)\pL" * 500,
        r"(\pL?){300}",
        ".{900}",
        "a{999999999}",
    ],
    ids=lambda pattern: pattern[:16],
)
def test_a_pattern_that_is_costly_to_compile_or_to_match_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)


def test_patterns_that_people_write_are_within_the_budget() -> None:
    assert Pattern(r"(?i)[\pL\pN_.-]+").matches("Bücher.2")
    assert Pattern("|".join(f"orders-{region}-{n}" for region in ("eu", "us") for n in range(150))).matches(
        "orders-us-7"
    )


def test_few_compiled_patterns_are_kept() -> None:
    for number in range(100):
        compile_pattern(f"orders-{number}")

    assert _outcome.cache_info().currsize <= 8


def test_names_are_found_by_pattern() -> None:
    assert compile_pattern("orders.*").matching(["orders", "orders.eu", "payments"]) == {"orders", "orders.eu"}
