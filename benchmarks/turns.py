"""Whose turn it is. Pure.

Who goes first changes from repeat to repeat, so that a machine that slows down, or a cache that fills up, favours
nobody.
"""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_turn(items: Sequence[Item], repeat: int) -> Sequence[Item]:
    return items if repeat % 2 == 0 else items[::-1]
