"""Which manifests a prune drops, and why the others stay. Pure."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from quorate.backup.errors import ConfigError
from quorate.backup.manifest import Manifest

_DAY_MS = 86_400_000


class PrunePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest stays where one of the rules keeps it."""

    keep_last: int | None = None
    keep_days: float | None = None
    drops_all: bool = False  # The newest one, too.


class ManifestAge(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    captured_ms: int
    compacted_from: int | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    kept_because: str | None  # None: it is dropped.


def check_policy(policy: PrunePolicy) -> None:
    has_rule = policy.keep_last is not None or policy.keep_days is not None
    if policy.drops_all and has_rule:
        raise ConfigError("--all deletes the whole backup: it cannot stand beside --keep-last or --keep-days")
    if not policy.drops_all and not has_rule:
        raise ConfigError("say what to keep: --keep-last, --keep-days or both")
    if policy.keep_last is not None and policy.keep_last < 1:
        raise ConfigError(f"--keep-last {policy.keep_last} keeps nothing: the newest manifest always stays")
    if policy.keep_days is not None and not 0 <= policy.keep_days < float("inf"):
        raise ConfigError(f"--keep-days {policy.keep_days} is not a number of days")


def age_of(manifest: Manifest) -> ManifestAge:
    return ManifestAge(number=manifest.number, captured_ms=manifest.captured_ms, compacted_from=manifest.compacted_from)


def decide(
    manifests: Sequence[ManifestAge],
    policy: PrunePolicy,
    *,
    now_ms: int,
    held: Collection[int] = (),
    in_use: Mapping[int, str] | None = None,
    begun: Collection[int] = (),
) -> list[Verdict]:
    """One verdict for each manifest, the oldest first.

    ``in_use`` has the restore that reads a manifest, ``begun`` those that an earlier prune has begun to drop.
    """
    in_use = in_use or {}
    by_rule = {} if policy.drops_all else _kept_by_rule(manifests, policy, now_ms)
    verdicts: list[Verdict] = []
    for number in sorted(manifest.number for manifest in manifests):
        reason = by_rule.get(number)
        if number in begun and reason != _NEWEST:
            reason = None
        if number in held:
            reason = "held"
        elif number in in_use:
            reason = f"read by restore {in_use[number]}, which is not done"
        verdicts.append(Verdict(number=number, kept_because=reason))
    return verdicts


_NEWEST = "the newest"


def _kept_by_rule(manifests: Sequence[ManifestAge], policy: PrunePolicy, now_ms: int) -> dict[int, str]:
    """A manifest that was compacted since says the same as its compaction, so it neither counts nor stays."""
    compacted = {manifest.compacted_from for manifest in manifests}
    own = sorted((each for each in manifests if each.number not in compacted), key=lambda each: -each.number)
    kept: dict[int, str] = {}
    for place, manifest in enumerate(own):
        if place == 0:
            kept[manifest.number] = _NEWEST
        elif policy.keep_last is not None and place < policy.keep_last:
            kept[manifest.number] = f"one of the last {policy.keep_last}"
        elif policy.keep_days is not None and now_ms - manifest.captured_ms < policy.keep_days * _DAY_MS:
            kept[manifest.number] = f"not {policy.keep_days:g} days old"
    return kept
