"""What a node reports about itself: set, replaced, cleared, and bounded in number."""

from quorate.kernel.conditions import REPORTED_PER_KIND, Condition, Conditions, Severity

FULL = Condition(kind="disk-full", subject="/data", sentence="no room")
SCRUB = Condition(kind="scrub", severity=Severity.INFORMATION, sentence="43 % checked")


def test_condition_is_reported_until_it_is_cleared() -> None:
    conditions = Conditions()

    assert conditions.set(FULL)
    assert list(conditions) == [FULL]
    assert conditions.clear("disk-full", "/data")
    assert not conditions.clear("disk-full", "/data")
    assert list(conditions) == []


def test_setting_a_condition_again_replaces_it() -> None:
    conditions = Conditions()
    conditions.set(SCRUB)
    later = Condition(kind="scrub", severity=Severity.INFORMATION, sentence="44 % checked")

    assert not conditions.set(later)
    assert conditions.find("scrub") == later
    assert list(conditions) == [later]


def test_problems_come_first() -> None:
    conditions = Conditions()
    conditions.set(SCRUB)
    conditions.set(FULL)

    assert list(conditions) == [FULL, SCRUB]


def test_conditions_beyond_the_bound_are_counted() -> None:
    conditions = Conditions()
    for number in range(REPORTED_PER_KIND + 7):
        conditions.set(Condition(kind="corrupt", subject=f"orders-{number}", sentence=f"orders-{number} is damaged"))

    reported = conditions.reported()

    assert len(reported) == REPORTED_PER_KIND + 1
    assert reported[-1].sentence == "and 7 more of the kind corrupt"
    assert reported[-1].severity is Severity.PROBLEM
