"""Lines that strangers can cause are bounded, and those left out are counted."""

from quorate.kernel.line_limit import LineLimit


def test_so_many_lines_are_told_in_an_interval_and_the_next_one_says_how_many_were_not() -> None:
    limit = LineLimit(most=2, interval_s=10.0)
    assert [limit.admit(now_s) for now_s in (100.0, 101.0, 102.0, 109.9)] == [0, 0, None, None]
    assert [limit.admit(now_s) for now_s in (110.0, 111.0, 112.0)] == [2, 0, None]
    assert limit.admit(200.0) == 1
