"""Which manifests a prune drops, and why the others stay; which ones a continuous backup drops by itself.

Rules keep manifests by number or age. Beside them no prune drops the last complete copy of a topic: where a run was
pointed at nothing, or got only a part, the copies before it stay however old they are.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from quorate.backup.errors import ConfigError
from quorate.backup.manifests.manifest import Manifest, Mode, TopicEntry
from quorate.kernel.ids import TopicId, TopicName

_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000

#: One life of a topic: what was deleted and made again holds other records.
TopicLife = tuple[TopicName, TopicId]
_MINUTES_PER_DAY: Final = 1440


class PrunePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest stays where one of the rules keeps it."""

    keep_last: int | None = None
    keep_days: float | None = None
    keep_hourly: int | None = None  # One for each of the last so many hours that have any.
    keep_daily: int | None = None
    only_rounds: bool = False  # What other runs than rounds of a continuous backup wrote stays.
    drops_all: bool = False  # The newest one, too.
    forget_topics: tuple[str, ...] = ()  # Of these even the last copy may go.


class ManifestAge(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    captured_ms: int
    compacted_from: int | None = None
    is_round: bool = False  # Of a continuous backup.
    is_complete: bool = True  # The run got all that it was asked for, and that was something.
    copies: dict[TopicLife, bool] = {}  # The topics in it, and whether all of each was captured.


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    kept_because: str | None  # None: it is dropped.


def check_policy(policy: PrunePolicy) -> None:
    rules = (policy.keep_last, policy.keep_days, policy.keep_hourly, policy.keep_daily)
    has_rule = any(rule is not None for rule in rules)
    if policy.drops_all and policy.forget_topics:
        raise ConfigError("--all deletes every topic of the backup: it needs no --forget-topic")
    if policy.drops_all and has_rule:
        raise ConfigError("--all deletes the whole backup: it cannot stand beside --keep-last or another rule")
    if not policy.drops_all and not has_rule:
        raise ConfigError("say what to keep: --keep-last, --keep-days, --keep-hourly, --keep-daily")
    if policy.keep_last is not None and policy.keep_last < 1:
        raise ConfigError(f"--keep-last {policy.keep_last} keeps nothing: the newest manifest always stays")
    if policy.keep_days is not None and not 0 <= policy.keep_days < float("inf"):
        raise ConfigError(f"--keep-days {policy.keep_days} is not a number of days")
    for name, count in (("hourly", policy.keep_hourly), ("daily", policy.keep_daily)):
        if count is not None and count < 0:
            raise ConfigError(f"--keep-{name} {count} is not a number of manifests")


def age_of(manifest: Manifest) -> ManifestAge:
    failed = {failure.topic for failure in manifest.failures}
    return ManifestAge(
        number=manifest.number,
        captured_ms=manifest.captured_ms,
        compacted_from=manifest.compacted_from,
        is_round=manifest.settings.mode is Mode.CONTINUOUS,
        is_complete=manifest.is_complete and bool(manifest.topics),
        copies={
            (topic.name, topic.topic_id): topic.name not in failed and _is_whole(topic) for topic in manifest.topics
        },
    )


def check_forgotten(manifests: Sequence[ManifestAge], policy: PrunePolicy) -> None:
    """A name that no manifest has is a mistake."""
    names = {name for manifest in manifests for name, _ in manifest.copies}
    for topic in policy.forget_topics:
        if topic not in names:
            raise ConfigError(f"--forget-topic {topic}: no manifest has that topic, so nothing was deleted")


def decide(
    manifests: Sequence[ManifestAge],
    policy: PrunePolicy,
    *,
    now_ms: int,
    held: Collection[int] = (),
    undecided: Collection[int] = (),
    in_use: Mapping[int, str] | None = None,
    begun: Collection[int] = (),
) -> list[Verdict]:
    """One verdict for each manifest, the oldest first.

    ``undecided`` are those of which the last decision is damaged. ``in_use`` has the restore that reads a manifest,
    ``begun`` those that an earlier prune has begun to drop.
    """
    in_use = in_use or {}
    by_rule = {} if policy.drops_all else _kept_by_rule(manifests, policy, now_ms)
    kept = {number: reason for number, reason in by_rule.items() if number not in begun or reason == _NEWEST}
    for number in (each.number for each in manifests):
        if number in held:
            kept[number] = "held"
        elif number in undecided:
            kept[number] = "kept because what was decided about it is damaged: hold or release it anew"
        elif number in in_use:
            kept[number] = f"read by restore {in_use[number]}, which is not done"
    if not policy.drops_all:
        kept |= _last_copies(manifests, kept, begun, policy.forget_topics)
    return [
        Verdict(number=number, kept_because=kept.get(number)) for number in sorted(each.number for each in manifests)
    ]


_NEWEST = "the newest"


def _kept_by_rule(manifests: Sequence[ManifestAge], policy: PrunePolicy, now_ms: int) -> dict[int, str]:
    """A manifest that was compacted says the same as its compaction, so it neither counts nor stays.

    One that is partial or empty does not count, and stays as long as the complete ones before it do.
    """
    compacted = {manifest.compacted_from for manifest in manifests}
    own = sorted((each for each in manifests if each.number not in compacted), key=lambda each: -each.number)
    thinned = _kept_by_period(own, policy)
    kept: dict[int, str] = {}
    complete = 0  # Of those that are newer.
    for place, manifest in enumerate(own):
        if place == 0:
            kept[manifest.number] = _NEWEST
        elif policy.keep_last is not None and complete < policy.keep_last:
            what = f"one of the last {policy.keep_last}"
            kept[manifest.number] = what if manifest.is_complete else f"partial or empty, and newer than {what}"
        elif policy.keep_days is not None and now_ms - manifest.captured_ms < policy.keep_days * _DAY_MS:
            kept[manifest.number] = f"not {policy.keep_days:g} days old"
        elif manifest.number in thinned:
            kept[manifest.number] = thinned[manifest.number]
        elif policy.only_rounds and not manifest.is_round:
            kept[manifest.number] = "not of a continuous backup"
        complete += manifest.is_complete
    return kept


def _kept_by_period(newest_first: Sequence[ManifestAge], policy: PrunePolicy) -> dict[int, str]:
    """Of each of the last hours and days that have any complete manifest the newest compaction, which names the fewest
    objects, or else the newest.
    """
    kept: dict[int, str] = {}
    for count, length_ms, name in (
        (policy.keep_daily, _DAY_MS, "day"),
        (policy.keep_hourly, _HOUR_MS, "hour"),
    ):
        periods: dict[int, ManifestAge] = {}
        for manifest in newest_first:
            period = manifest.captured_ms // length_ms
            best = periods.get(period)
            is_better = best is None or (best.compacted_from is None and manifest.compacted_from is not None)
            if manifest.is_complete and is_better:
                periods[period] = manifest
        for period in sorted(periods, reverse=True)[: count or 0]:
            kept[periods[period].number] = f"the one of its {name}"
    return kept


def _last_copies(
    manifests: Sequence[ManifestAge], kept: Collection[int], begun: Collection[int], forgotten: Collection[str]
) -> dict[int, str]:
    """Manifests that stay because none of the kept ones has as good a copy of some topic."""
    found: dict[TopicLife, bool] = {}
    for manifest in manifests:
        if manifest.number in kept:
            for life, is_whole in manifest.copies.items():
                found[life] = found.get(life, False) or is_whole
    missing: dict[int, list[str]] = {}
    for wants_whole in (True, False):
        for manifest in sorted(manifests, key=lambda each: -each.number):
            if manifest.number in kept or manifest.number in begun:
                continue
            for life, is_whole in manifest.copies.items():
                if life[0] not in forgotten and _is_better(found.get(life), is_whole=is_whole, wants_whole=wants_whole):
                    found[life] = is_whole
                    missing.setdefault(manifest.number, []).append(life[0])
    return {number: _last_copy_of(sorted(set(topics))) for number, topics in missing.items()}


def _is_better(known: bool | None, *, is_whole: bool, wants_whole: bool) -> bool:
    return (is_whole and not known) if wants_whole else known is None


def _last_copy_of(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"the last complete copy of topic {topics[0]}{more} (--forget-topic {topics[0]} lets it go)"


def _is_whole(topic: TopicEntry) -> bool:
    return len(topic.partitions) == topic.partition_count and all(each.is_complete for each in topic.partitions)


class MaintenancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    interval_ms: int | None = 600_000  # None: there is none.
    keep_minutes: int = 10  # Every round of the last so many minutes stays,
    keep_hourly: int = 24  # then one an hour,
    keep_daily: int = 30  # and one a day.
    compact_below_bytes: int = 8 * 1024 * 1024  # Objects smaller than this are merged.

    @property
    def prune_policy(self) -> PrunePolicy:
        return PrunePolicy(
            keep_days=self.keep_minutes / _MINUTES_PER_DAY,
            keep_hourly=self.keep_hourly,
            keep_daily=self.keep_daily,
            only_rounds=True,
        )
