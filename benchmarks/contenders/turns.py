"""Which contender does which work in a case. Pure."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from benchmarks.contenders.names import ContenderName


class Named(Protocol):
    @property
    def name(self) -> ContenderName: ...


Who = TypeVar("Who", bound=Named)


def turns_of(contenders: Iterable[Who], includes: Callable[[ContenderName], bool]) -> list[tuple[ContenderName, Who]]:
    """By the names that the case includes. One process of Quorate does its work with and without compression."""
    taking_part = list(contenders)
    return [
        (name, contender)
        for name in ContenderName
        for contender in taking_part
        if includes(name) and (contender.name is name or (name.is_judged and contender.name.is_judged))
    ]
