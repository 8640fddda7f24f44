"""A case of the matrix: a request that names what is there and what is not, and the versions in which it is sent."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from quorate.broker.handlers import APIS
from quorate.protocol.apis import ApiKey
from quorate.protocol.schema import Request
from tests.compat.security_matrix.world import World

#: From the world and the version.
Make = Callable[[World, int], Request]
_FIRST_PRODUCE = 3


class Case(msgspec.Struct, frozen=True, kw_only=True):
    api: ApiKey
    what: str
    make: Make
    versions: tuple[int, ...]
    #: What has to be there again before each request.
    before: Callable[[World], Any] | None = None
    #: Its answer is about whatever there is.
    is_list: bool = False
    #: It may have no answer though all is well.
    is_unanswered: bool = False

    @property
    def name(self) -> str:
        return f"{self.api.name} {self.what}"


def case(
    api: ApiKey,
    what: str,
    make: Make,
    *more_versions: int,
    first: int | None = None,
    last: int | None = None,
    **others: Any,
) -> Case:
    """The oldest and the newest version, and those in between where the answer changes its shape."""
    served = APIS[api]
    oldest = first if first is not None else max(served.min_version, _FIRST_PRODUCE if api is ApiKey.PRODUCE else 0)
    newest = last if last is not None else served.max_version
    return Case(api=api, what=what, make=make, versions=tuple(sorted({oldest, *more_versions, newest})), **others)


def case_each(
    api: ApiKey,
    what: str,
    names: Iterable[str],
    make: Callable[[str, World, int], Request],
    *versions: int,
    **others: Any,
) -> tuple[Case, ...]:
    """A case for each of the names, where a request has room for one."""
    return tuple(case(api, f"{what} {name}", partial(make, name), *versions, **others) for name in names)
