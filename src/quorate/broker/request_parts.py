"""Requests about many things, cut into parts that are answered one after the other.

An API whose answer has an element for each element of its request names the arrays on both sides. What the handler is
given is then never longer than one part, and the answers to the parts are put together as if there had been no cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from quorate.kernel.turns import SLICE_ELEMENTS
from quorate.protocol.schema import Message, Request, Response

#: What an array counts for that is null, which asks for all that there are.
_ALL_OF_THEM = 25


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    #: The arrays of the request, from the outermost on: ``("topics", "partitions")``.
    of: tuple[str, ...]
    #: Those of the response, as many.
    into: tuple[str, ...]
    #: What is named twice is answered once: told by these fields of the outermost elements, or by a name itself.
    distinct_by: tuple[str, ...] | None = None
    #: How many of the innermost elements are answered in one slice.
    per_part: int = SLICE_ELEMENTS

    def count(self, request: Request) -> int:
        return _count(request, self.of)


class Part(msgspec.Struct, frozen=True):
    request: Request
    #: How many levels of arrays go on in the middle of an element: 1 for one whose inner array was cut.
    continued_levels: int


def cut(request: Request, parts: Parts) -> Iterator[Part]:
    """The request in parts that are small enough, in order."""
    name, *inner = parts.of
    elements: Sequence[Any] = getattr(request, name)
    if parts.distinct_by is not None:
        elements = tuple(_distinct(elements, parts.distinct_by))
    for chunk, continued_levels in _chunks(elements, tuple(inner), parts.per_part):
        yield Part(msgspec.structs.replace(request, **{name: chunk}), continued_levels)


def join(answers: Sequence[tuple[Part, Response]], parts: Parts) -> Response:
    """One response of those to all parts. The first error of a whole part, and the longest wait, are the whole's."""
    name, *inner = parts.into
    elements: list[Any] = []
    for part, answer in answers:
        _extend(elements, getattr(answer, name), tuple(inner), part.continued_levels)
    responses = [answer for _, answer in answers]
    base = next((response for response in responses if getattr(response, "error_code", 0)), responses[0])
    times_ms = [getattr(response, "throttle_time_ms", 0) for response in responses]
    if any(times_ms):
        return msgspec.structs.replace(base, throttle_time_ms=max(times_ms), **{name: elements})
    return msgspec.structs.replace(base, **{name: elements})


def _distinct(elements: Sequence[Any], fields: tuple[str, ...]) -> Iterable[Any]:
    if not fields:
        return dict.fromkeys(elements)
    identity = attrgetter(*fields)
    first: dict[Any, Any] = {}
    for element in elements:
        first.setdefault(identity(element), element)
    return first.values()


def _count(owner: Message, path: tuple[str, ...]) -> int:
    elements = getattr(owner, path[0])
    if elements is None:
        return _ALL_OF_THEM
    if len(path) == 1:
        return len(elements)
    return sum(max(1, _count(element, path[1:])) for element in elements)


def _chunks(elements: Sequence[Any], path: tuple[str, ...], size: int) -> Iterator[tuple[list[Any], int]]:
    chunk: list[Any] = []
    room = size
    for element in elements:
        weight = max(1, _count(element, path)) if path else 1
        if weight > room and chunk:
            yield chunk, 0
            chunk, room = [], size
        if weight > size:
            yield from _pieces(element, path, size)
            continue
        chunk.append(element)
        room -= weight
    if chunk:
        yield chunk, 0


def _pieces(element: Any, path: tuple[str, ...], size: int) -> Iterator[tuple[list[Any], int]]:
    """An element that is too large for one part."""
    is_first = True
    for inner, continued_levels in _chunks(getattr(element, path[0]), path[1:], size):
        yield [msgspec.structs.replace(element, **{path[0]: inner})], 0 if is_first else continued_levels + 1
        is_first = False


def _extend(elements: list[Any], more: Sequence[Any], path: tuple[str, ...], continued_levels: int) -> None:
    if not continued_levels or not elements or not more:
        elements.extend(more)
        return
    last, first = elements[-1], more[0]
    inner = getattr(last, path[0]) or ()
    if type(inner) is not list:
        inner = list(inner)
    # In place: an element that was cut into a thousand pieces is not copied a thousand times.
    _extend(inner, getattr(first, path[0]) or (), path[1:], continued_levels - 1)
    base = last if getattr(last, "error_code", 0) else first
    elements[-1] = msgspec.structs.replace(base, **{path[0]: inner})
    elements.extend(more[1:])
