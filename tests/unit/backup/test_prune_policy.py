"""Which manifests stay, by which rule."""

from quorate.backup.prune_policy import ManifestAge, PrunePolicy, decide

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def ages(*days: float, compactions: dict[int, int] | None = None) -> list[ManifestAge]:
    """Manifests 1, 2, … captured so many days ago."""
    found = compactions or {}
    return [
        ManifestAge(number=number, captured_ms=NOW_MS - round(each * DAY_MS), compacted_from=found.get(number))
        for number, each in enumerate(days, start=1)
    ]


def dropped(manifests: list[ManifestAge], **options: float | bool) -> list[int]:
    policy = PrunePolicy(
        keep_last=None if "keep_last" not in options else int(options["keep_last"]),
        keep_days=options.get("keep_days"),
        drops_all=bool(options.get("drops_all")),
    )
    return [each.number for each in decide(manifests, policy, now_ms=NOW_MS) if each.kept_because is None]


def test_the_last_so_many_stay() -> None:
    assert dropped(ages(9, 8, 7, 6), keep_last=2) == [1, 2]
    assert dropped(ages(9, 8), keep_last=5) == []


def test_those_of_the_last_so_many_days_stay_and_the_newest_however_old() -> None:
    assert dropped(ages(9, 3, 2.9, 0), keep_days=3) == [1, 2]
    assert dropped(ages(90, 80), keep_days=3) == [1]


def test_a_manifest_stays_where_one_of_two_rules_keeps_it() -> None:
    assert dropped(ages(9, 8, 2, 1), keep_last=3, keep_days=1.5) == [1]
    assert dropped(ages(9, 2, 1, 0), keep_last=1, keep_days=3) == [1]


def test_a_clock_that_is_behind_drops_less_and_never_the_newest() -> None:
    assert dropped(ages(-5, -4, -3), keep_days=0) == []


def test_a_compacted_manifest_goes_and_its_compaction_does_not_count() -> None:
    assert dropped(ages(4, 3, 3, 2, compactions={3: 2}), keep_last=3) == [2]
    assert dropped(ages(4, 3, 3, 3, compactions={3: 2, 4: 3}), keep_last=1) == [1, 2, 3]


def test_what_is_held_read_or_begun_is_told_apart() -> None:
    verdicts = decide(
        ages(5, 4, 3, 2, 1, 0), PrunePolicy(keep_last=3), now_ms=NOW_MS, held=[1], in_use={2: "ab-1"}, begun=[4, 6]
    )

    assert [verdict.kept_because for verdict in verdicts] == [
        "held",
        "read by restore ab-1, which is not done",
        None,
        None,
        "one of the last 3",
        "the newest",
    ]


def test_everything_goes_only_when_asked_for() -> None:
    assert dropped(ages(2, 1), drops_all=True) == [1, 2]
