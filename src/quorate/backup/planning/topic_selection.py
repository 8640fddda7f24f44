"""Which topics a backup or a restore is about: globs to include, globs to exclude."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec


class TopicSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic is selected that matches one of ``include`` and none of ``exclude``.

    Internal topics (offsets of groups, transactions) are selected only by their full name: a ``*`` does not mean them.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def selects(self, topic: str, *, is_internal: bool = False) -> bool:
        if any(fnmatchcase(topic, pattern) for pattern in self.exclude):
            return False
        if is_internal:
            return topic in self.include
        return any(fnmatchcase(topic, pattern) for pattern in self.include)

    def names_without_topic(self, topics: Iterable[str]) -> Sequence[str]:
        """Plain names among ``include`` that no topic has: a mistake to tell the user of."""
        existing = set(topics)
        return [name for name in self.include if not any(mark in name for mark in "*?[") and name not in existing]
