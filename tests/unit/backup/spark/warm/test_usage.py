"""When the time of a warm Spark is over."""

import math

from quorate.backup.spark.warm.keeper import Usage


def test_nobody_ever_came() -> None:
    usage = Usage(100, keep_warm_s=10)

    assert usage.ends_in_s(103) == 7
    assert usage.ends_in_s(111) == 0


def test_it_stays_while_a_command_uses_it_and_as_long_after_the_last_one_as_that_one_asked_for() -> None:
    usage = Usage(0, keep_warm_s=10)
    usage.came(20)
    usage.came(30)
    usage.left(1000)
    assert usage.ends_in_s(5000) == math.inf

    usage.left(6000)

    assert usage.ends_in_s(6000) == 30
    assert usage.ends_in_s(6031) == 0


def test_a_stop_ends_it_under_whoever_uses_it() -> None:
    usage = Usage(0, keep_warm_s=10)
    usage.came(10)

    usage.stop()

    assert usage.ends_in_s(0) == 0
