"""What stands in the log is one line a record, and never what somebody else would like to stand there."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log_output import MOST_OF_A_MESSAGE, TEXT_FORMAT, JsonFormatter, LineFormatter, escape, fields_of
from quorate.kernel.errors import MOST_CHARACTERS

TEXT = LineFormatter(TEXT_FORMAT)
JSON = JsonFormatter()
FORGED = "me\n2026-01-01 00:00:00,000 CRITICAL quorate.broker.node node failed\r\x1b[2J\u2028\u202e\x85\x00"


def record(message: str, *args: Any, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("quorate.x", logging.ERROR, __file__, 1, message, args, exc_info)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_client_id_with_line_breaks_stays_on_its_line() -> None:
    line = TEXT.format(record("request failed client_id=%s peer=%s", FORGED, "::1"))

    assert len(line.splitlines()) == 1
    assert line.endswith(
        r" ERROR quorate.x request failed client_id=me\n2026-01-01 00:00:00,000 CRITICAL quorate.broker.node node "
        r"failed\r\x1b[2J\u2028\u202e\x85\x00 peer=::1"
    )


def test_what_stands_in_an_exception_cannot_begin_a_line() -> None:
    text = TEXT.format(record("request failed", error=raised(ValueError(FORGED))))

    first, *others = text.splitlines()
    assert first.endswith(" ERROR quorate.x request failed")
    assert len(others) > 2
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in text


def test_json_is_one_object_a_line_with_the_values_as_they_were_said() -> None:
    line = JSON.format(record("request failed api_key=%s ratio=%.2f client_id=%s", 3, 0.5, FORGED))

    assert len(line.splitlines()) == 1
    shown = json.loads(line)
    assert (shown["level"], shown["logger"]) == ("ERROR", "quorate.x")
    assert shown["fields"] == {"api_key": 3, "ratio": 0.5, "client_id": FORGED}
    assert shown["message"].startswith(r"request failed api_key=3 ratio=0.50 client_id=me\n2026")


def test_json_of_an_exception_is_one_line_too() -> None:
    shown = json.loads(JSON.format(record("failed", error=raised(ValueError("\ud800")))))

    assert "ValueError" in shown["exception"]


def test_long_texts_are_clipped_and_what_comes_after_them_is_not() -> None:
    line = TEXT.format(record("request failed client_id=%s peer=%s", "x" * 100_000, "::1"))

    assert line.endswith(f"x… ({100_000 - MOST_CHARACTERS} more characters) peer=::1")
    assert len(TEXT.format(record("%s" * 100, *["y" * MOST_CHARACTERS] * 100))) < MOST_OF_A_MESSAGE + 200
    assert len(JSON.format(record("x", error=raised(ValueError("z" * 10**6))))) < 3 * MOST_OF_A_MESSAGE


@given(st.text(), st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.none(), st.lists(st.text())))
def test_any_value_makes_one_line_of_either_kind(message: str, value: object) -> None:
    for said in (record("x value=%s", value), record(message), record(message, value)):
        line = TEXT.format(said)
        assert len(line.splitlines()) == 1
        line.encode()
        shown = JSON.format(said)
        assert len(shown.splitlines()) == 1
        json.loads(shown, parse_constant=pytest.fail)


def test_other_handlers_see_the_record_as_it_was() -> None:
    said = record("request failed client_id=%s", FORGED, error=raised(ValueError("x")))
    TEXT.format(said)

    assert (said.args, said.exc_text) == ((FORGED,), None)


def test_fields_are_told_only_where_they_are_sure() -> None:
    assert fields_of(record("100%% of a=%s and %s b=%d", "x", "y", 3)) == {"a": "x", "b": 3}
    assert fields_of(record("a=%s")) == {}
    assert fields_of(record("a=%s", "x", "y")) == {}


def test_ordinary_text_of_any_script_is_left_alone() -> None:
    assert escape("Grüße, 世界 🎈 \\n") == "Grüße, 世界 🎈 \\n"
