"""What things are called on both nodes. Names that come in pairs are of one length: what exists, and what does not."""

import itertools
import re
from typing import Final
from uuid import UUID

ADMIN: Final = "admin"
#: Topics, groups and transactional ids alike. Rights on what begins with ``team-`` are given by a prefix.
HERE: Final = ("orders-here", "team-here")
GONE: Final = ("orders-gone", "team-gone")
NAMES: Final = (*HERE, *GONE)
#: Groups of KIP-848, and missing ones.
LIVE: Final = ("orders-live", "team-live")
DEAD: Final = ("orders-dead", "team-dead")
#: Topics and groups that are there again before each request that deletes them.
DOOMED: Final = ("orders-doom", "team-doom")
#: Transactional ids whose producers come and go.
PRODUCERS: Final = ("orders-init", "team-init")
PREFIX: Final = "team-"
OTHER: Final = "orders-"
#: Whoever lists things is told of these among others, which come and go.
LASTING: Final = frozenset((*NAMES, *LIVE, *DEAD, "__consumer_offsets"))

_MISSING_IDS: Final = {name: UUID(f"00000000-0000-4000-8000-00000000000{number}") for number, name in enumerate(GONE)}
_FRESH: Final = re.compile(r"\b(orders|team)-fresh-\d+")


def password_of(user: str) -> str:
    return f"{user}-secret"


def missing_id(name: str) -> UUID:
    return _MISSING_IDS[name]


class FreshNames:
    """A name that was never used: of what a request may make."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}fresh-{next(self._numbers)}"


def without_numbers(text: str) -> str:
    return _FRESH.sub(r"\1-fresh", text)
