"""Answers of a coordinator: which of them are given only while nobody else can coordinate.

What a coordinator appends is answered once all replicas in sync have it, so every successor goes on from it. But much
is answered from memory: committed offsets, a member or producer that was replaced, a transaction that has ended
already. A coordinator that is cut off from the cluster, and not from its clients, would answer that as it was before
its successor went on. So a majority of the quorum has to know of no successor first.

What is answered later and not by the log is left as it is: a member that has joined such a coordinator gets no
assignment from it, since that takes an append.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from quorate.metadata.store import MetadataStore

ResultType = TypeVar("ResultType")


class Reign(Protocol):
    @property
    def is_over(self) -> bool:
        """Whether another node coordinates, or this one anew."""
        ...


async def vouched_for(
    answer: "asyncio.Future[ResultType]",
    binds: Callable[[ResultType], bool],
    reign: Reign,
    metadata: MetadataStore,
    *,
    otherwise: ResultType,
) -> ResultType:
    """The answer; the other one where the client would act on it for good, and a successor may have gone on."""
    if not answer.done():
        return await answer
    result = answer.result()
    if not binds(result) or (await metadata.is_current() and not reign.is_over):
        return result
    return otherwise
