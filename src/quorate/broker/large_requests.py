"""Requests and answers with many elements: decoded and encoded by a worker, and answered in parts that take turns.

To make thousands of objects of a frame takes milliseconds for each few kilobytes, and so does the way back. Few large
requests are worked on at a time, so that the memory of many of them is that of a few.
"""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Executor
from typing import cast

import msgspec

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Part, Parts, cut, join
from quorate.broker.request_time import RequestTimes
from quorate.broker.services import Services
from quorate.kernel.ports import Buffer
from quorate.kernel.tasks import awaited_task
from quorate.kernel.turns import Turns
from quorate.protocol.codec import decode_part
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import RequestHeader, encode_response
from quorate.protocol.schema import Message, Request, Response, fields_of
from quorate.transport.outbox import Reply

#: A frame up to this size is decoded where it is, in a few milliseconds at most.
LARGE_FRAME_BYTES = 32 * 1024
#: Of a larger frame of Produce or Fetch: most are large for the records alone, and are decoded where they are.
HOT_ELEMENTS = 2_000
#: Of any request but Produce: what no client comes near to.
MAX_FRAME_BYTES = 8 * 1024 * 1024
#: Of all requests together that wait to be decoded.
MAX_WAITING_BYTES = 32 * 1024 * 1024
#: Two, so that one that has to wait for other nodes does not keep all others waiting.
ANSWERED_AT_ONCE = 2
#: How long others wait at most for a request whose elements are slow to answer. Clients wait half a minute by default.
_SLOW_S = 20.0
#: An answer with more elements than this is encoded by a worker.
LARGE_ANSWER_ELEMENTS = 500
ALL_LEVELS = 9
#: Of the answers to Produce and Fetch: topics and partitions.
HOT_LEVELS = 2


class LargeRequests:
    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor, turns: Turns, times: RequestTimes) -> None:
        self._times = times
        self._loop = loop
        self._executor = executor
        self._turns = turns
        self._decoding = asyncio.Lock()
        self._answering = asyncio.Semaphore(ANSWERED_AT_ONCE)
        self._waiting_bytes = 0
        self._turn_to_decode = asyncio.Lock()
        #: Requests in parts that are decoded and not answered yet.
        self.to_answer = 0
        self._answered = asyncio.Event()

    @property
    def has_enough(self) -> bool:
        """Whether a further request in parts would only wait: its frame takes a fraction of its elements' memory."""
        return self.to_answer > ANSWERED_AT_ONCE

    def decode(self, api: Api, header: RequestHeader, frame: memoryview) -> Awaitable[Request]:
        """The request, when a worker has made it. The frame is copied here: the connection reads its next into it."""
        if len(frame) > MAX_FRAME_BYTES and not api.is_hot:
            raise ProtocolError(f"a request of {len(frame)} bytes, the limit of this API is {MAX_FRAME_BYTES}")
        if self._waiting_bytes and self._waiting_bytes + len(frame) > MAX_WAITING_BYTES:
            raise ProtocolError("too many large requests wait to be read")
        size_bytes = len(frame)
        kept = bytearray(frame) if api.is_hot else bytes(frame)
        decoding = awaited_task(self._loop, self._times.counted(self._decode(api, header, kept)))
        self._waiting_bytes += size_bytes
        decoding.add_done_callback(lambda done: self._decoded(done, size_bytes))
        return decoding

    async def _decode(self, api: Api, header: RequestHeader, kept: Buffer) -> Request:
        if not api.parts:
            return await self._decode_by_worker(api, header, kept)
        async with self._turn_to_decode:
            while self.has_enough:
                self._answered.clear()
                await self._answered.wait()
            return await self._decode_by_worker(api, header, kept)

    async def _decode_by_worker(self, api: Api, header: RequestHeader, kept: Buffer) -> Request:
        async with self._decoding:
            return await self._times.by_worker(self._loop, self._executor, decode_request, api, header, kept)

    def _decoded(self, done: "asyncio.Task[Request]", size_bytes: int) -> None:
        self._waiting_bytes -= size_bytes
        if not done.cancelled():
            done.exception()  # Whoever waited for it may have gone, and nobody else needs to know of it.

    def answer_in_parts(
        self, services: Services, api: Api, parts: Parts, context: RequestContext, request: Request
    ) -> Awaitable[Response]:
        self.to_answer += 1
        answering = awaited_task(self._loop, self._times.counted(self._answer(services, api, parts, context, request)))
        answering.add_done_callback(self._note_answered)
        return answering

    async def _answer(
        self, services: Services, api: Api, parts: Parts, context: RequestContext, request: Request
    ) -> Response:
        answers: list[tuple[Part, Response]] = []
        async with self._answering:
            context = msgspec.structs.replace(context, deadline_s=self._loop.time() + _SLOW_S)
            for part in cut(request, parts):
                await self._turns.next()
                result = api.handle(services, context, part.request)
                if not isinstance(result, Response):
                    result = await cast(Awaitable[Response], result)
                answers.append((part, result))
        return join(answers, parts)

    def _note_answered(self, done: "asyncio.Task[Response]") -> None:
        self.to_answer -= 1
        self._answered.set()
        if not done.cancelled():
            done.exception()  # As above.

    async def encode(self, header: RequestHeader, response: Response) -> Reply:
        return await self._times.by_worker(
            self._loop, self._executor, encode_response, header.correlation_id, response, header.api_version
        )


def decode_request(api: Api, header: RequestHeader, frame: Buffer, max_elements: int | None = None) -> Request:
    # Bytes after the request are passed over, as Apache Kafka does: librdkafka sends some with Metadata.
    return decode_part(api.request, frame, header.api_version, header.body_position, max_elements or api.max_elements)[
        0
    ]


def parts_of(api: Api, request: Request) -> Parts | None:
    """By which arrays the request has to be cut, if it has to be."""
    return next((parts for parts in api.parts if parts.count(request) > parts.per_part), None)


def is_large(message: Message, limit: int = LARGE_ANSWER_ELEMENTS, *, levels: int = ALL_LEVELS) -> bool:
    """Whether all arrays of the message together have more elements; looks at no more than it has to.

    With ``levels`` only so many arrays inside each other are looked at.
    """
    return _room_left(message, limit, levels) < 0


def _room_left(message: Message, room: int, levels: int) -> int:
    for name, has_inner_arrays in _arrays(type(message)):
        elements = getattr(message, name)
        if elements is None:
            continue
        room -= len(elements)
        if room < 0:
            return room
        if has_inner_arrays and levels > 1:
            for element in elements:
                room = _room_left(element, room, levels - 1)
                if room < 0:
                    return room
    return room


_known_arrays: dict[type[Message], tuple[tuple[str, bool], ...]] = {}


def _arrays(message_type: type[Message]) -> tuple[tuple[str, bool], ...]:
    """The names of the arrays, and whether there are arrays in their elements."""
    known = _known_arrays.get(message_type)
    if known is None:
        known = _known_arrays[message_type] = tuple(
            (field.name, isinstance(field.type, type) and bool(_arrays(field.type)))
            for field in fields_of(message_type)
            if field.is_array
        )
    return known
