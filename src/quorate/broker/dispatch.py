"""From a frame to a handler and back to a frame: requests of clients, and Kafka requests between nodes.

Every request of a client that has a correlation id is answered with it, whatever else is wrong. A request that cannot
be read at all ends its connection, and only that.

Between nodes requests go over the links that they hold anyway: no listener of a peer's has to be known. One travels as
its API key, its version and its body, and is served by the same handler that clients reach.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, TypeVar, cast

import msgspec

from quorate.broker.api import Api, HandlerResult
from quorate.broker.guarded_apis import guarded
from quorate.broker.handlers import APIS
from quorate.broker.handlers.api_versions import unsupported_version_response
from quorate.broker.large_requests import (
    ALL_LEVELS,
    HOT_ELEMENTS,
    HOT_LEVELS,
    LARGE_FRAME_BYTES,
    LargeRequests,
    decode_request,
    is_large,
    parts_of,
)
from quorate.broker.request_context import Origin, RequestContext
from quorate.broker.request_time import CountedSteps, RequestTime
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId
from quorate.kernel.line_limit import LineLimit
from quorate.kernel.tasks import awaited_task
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError, TooManyElements
from quorate.protocol.frames import (
    RequestHeader,
    decode_request_header,
    encode_response,
    encode_unsupported_api_versions,
)
from quorate.protocol.hot_messages import encode_hot_response, read_hot_request
from quorate.protocol.schema import Request, Response
from quorate.transport.connection import CloseConnection, ServerConnection
from quorate.transport.outbox import Reply
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.channels import Sender
from quorate.transport.peers.errors import PeerProtocolError, PeerTimeout, PeerUnreachable
from quorate.transport.peers.frames import Channel

logger = logging.getLogger(__name__)

_BARE_ERROR = Struct(">iih")
_MOST_TOLD_FAILURES = 1000
#: Of a request between nodes: its API key and version.
_PEER_START = Struct(">hh")
#: Nodes ask nothing else of each other in this way.
_SERVED_TO_PEERS = frozenset({ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS})
_ANOTHER_NODE = Origin(host="")
ResponseType = TypeVar("ResponseType", bound=Response)


class Dispatch:
    """What all connections of a node share."""

    def __init__(self, services: Services) -> None:
        self.services = services
        control = services.access_control
        self.apis = APIS if control is None else guarded(APIS, control)
        times = services.quotas.request_times
        self.large_requests = LargeRequests(services.loop, services.executor, services.turns, times)
        #: Lines that whoever connects can cause.
        self.refused_lines = LineLimit()
        self.unencodable_lines = LineLimit()
        #: Kinds of failed requests whose traceback is in the log.
        self._told_failures: set[object] = set()

    def serve(self, connection: ServerConnection, origin: Origin | None = None) -> "Dispatcher":
        return Dispatcher(self, connection, origin or Origin(host=connection.peer_host))

    def is_news(self, failure: object) -> bool:
        """A traceback is told once: who sends the same request again and again does not fill the log with it."""
        is_news = failure not in self._told_failures and len(self._told_failures) < _MOST_TOLD_FAILURES
        if is_news:
            self._told_failures.add(failure)
        return is_news


class Dispatcher:
    """Serves the frames of one connection."""

    def __init__(self, shared: Dispatch, connection: ServerConnection, origin: Origin) -> None:
        self._shared = shared
        self.loop = shared.services.loop
        self._services = shared.services
        self._apis = shared.apis
        self._large_requests = shared.large_requests
        self._connection = connection
        self._times = shared.services.quotas.request_times
        self._time = RequestTime(self._times)
        self._now_s = self._times.now_s
        #: Of every request from now on.
        self.origin = origin
        self._mute = connection.mute
        self._hold = connection.hold

    def __call__(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        if self._times.is_counted and self._times.running is None:
            return self._serve_counted(frame)
        hot = read_hot_request(frame)
        if hot is None:
            return self._serve_any(frame)
        header, request = hot
        api = self._apis[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            return self._refuse_version(header)
        return self._handle(api, header, request, len(frame))

    def _serve_any(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        try:
            header = decode_request_header(frame)
            api = self._apis.get(header.api_key)
            if api is None or not header.is_known or not api.min_version <= header.api_version <= api.max_version:
                return self._refuse_version(header)
            if len(frame) > LARGE_FRAME_BYTES and not api.is_hot:
                return self._decode_later(api, header, frame)
            most = HOT_ELEMENTS if len(frame) > LARGE_FRAME_BYTES else api.max_elements
            request = decode_request(api, header, frame, most)
            if api.parts and self._large_requests.has_enough and parts_of(api, request) is not None:
                return self._decode_later(api, header, frame)
        except TooManyElements as error:
            if api is None or not api.is_hot or len(frame) <= LARGE_FRAME_BYTES:
                raise self._refused(error) from error
            return self._decode_in_order(api, header, frame)
        except ProtocolError as error:
            raise self._refused(error) from error
        return self._handle(api, header, request, len(frame))

    def _serve_counted(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        times, time, now_s = self._times, self._time, self._now_s
        times.running = time
        time.begun_s = now_s()
        try:
            return self.__call__(frame)
        finally:
            time.taken_s += now_s() - time.begun_s
            times.running = None

    def _decode_in_order(self, api: Api, header: RequestHeader, frame: memoryview) -> "asyncio.Future[Reply | None]":
        """What comes behind it on the connection waits until it is handled."""
        handled: asyncio.Future[None] = self._services.loop.create_future()
        try:
            finishing = self._decode_later(api, header, frame, handled)
        except ProtocolError as error:
            raise self._refused(error) from error
        self._hold(handled)
        # Whatever became of it, nobody waits for it longer.
        finishing.add_done_callback(lambda _: handled.cancel())
        return finishing

    def _decode_later(
        self, api: Api, header: RequestHeader, frame: memoryview, handled: "asyncio.Future[None] | None" = None
    ) -> "asyncio.Future[Reply | None]":
        decoding = self._large_requests.decode(api, header, frame)
        return self._later(api, self._finish_large(api, header, decoding, len(frame), handled))

    def _handle(
        self, api: Api, header: RequestHeader, request: Request, size_bytes: int
    ) -> "Reply | asyncio.Future[Reply | None] | None":
        try:
            result = self._result(api, header, request, size_bytes)
            time = self._times.running
            if result is None:
                if time is not None and time.taken_s >= time.due_at_s:
                    self._hold_back(header, time)
                return None
            if isinstance(result, Response) and (api.is_hot or not is_large(result)):
                if time is not None and (time.taken_s >= time.due_at_s or not api.is_hot):
                    result = self._held_back(header, result, time)
                return self._encoded(header, result)
        except CloseConnection:
            raise
        except Exception as error:
            raise self._failed(header, error) from error
        if type(result) is asyncio.Future and api.is_hot and self._times.running is None:
            return self._when_done(header, result)
        return self._later(api, self._finish(api, header, result))

    def _when_done(
        self, header: RequestHeader, answer: "asyncio.Future[Response | None]"
    ) -> "asyncio.Future[Reply | None]":
        """As ``_finish``, of a small answer and without a task: many requests wait for others to have their records.

        A request whose connection is gone lets go of what it waits for, which would keep the connection.
        """
        reply: asyncio.Future[Reply | None] = self.loop.create_future()
        reply.add_done_callback(partial(_let_go, answer))
        answer.add_done_callback(partial(self._reply_to, header, reply))
        return reply

    def _reply_to(
        self,
        header: RequestHeader,
        reply: "asyncio.Future[Reply | None]",
        answer: "asyncio.Future[Response | None]",
    ) -> None:
        if reply.done():
            return
        try:
            response = answer.result()
            reply.set_result(None if response is None else self._encoded(header, response))
        except asyncio.CancelledError:
            reply.cancel()
        except CloseConnection as error:
            reply.set_exception(error)
        except Exception as error:
            reply.set_exception(self._failed(header, error))

    def _encoded(self, header: RequestHeader, response: Response) -> Reply:
        try:
            return encode_hot_response(header.correlation_id, response, header.api_version)
        except ProtocolError as error:
            return self._unencodable(header, response, error)

    def _hold_back(self, header: RequestHeader, time: RequestTime) -> int:
        """Count what was taken, and read nothing more where that is too much; returns for how many milliseconds."""
        taken_s = time.take_s()
        throttle_ms = self._services.quotas.throttle_request(self.origin.principal.name, header.client_id, taken_s)
        time.counted(is_over=throttle_ms > 0)
        if throttle_ms > 0:
            self._mute(throttle_ms)
        return throttle_ms

    def _held_back(self, header: RequestHeader, response: Response, time: RequestTime) -> Response:
        """The same with the answer, which tells of it, or of a longer time that it has to tell of anyhow."""
        throttle_ms = self._hold_back(header, time)
        if throttle_ms <= getattr(response, "throttle_time_ms", throttle_ms):
            return response
        return msgspec.structs.replace(response, throttle_time_ms=throttle_ms)

    def _later(self, api: Api, reply: Coroutine[Any, Any, Reply | None]) -> "asyncio.Future[Reply | None]":
        time = self._times.running
        future = awaited_task(self._services.loop, reply if time is None else CountedSteps(time, reply))
        if not api.is_hot:
            self._connection.expect_bulky(future)
        return future

    def _result(self, api: Api, header: RequestHeader, request: Request, size_bytes: int) -> HandlerResult:
        context = RequestContext(
            api_version=header.api_version,
            client_id=header.client_id,
            origin=self.origin,
            size_bytes=size_bytes,
            mute=self._mute,
            hold=self._hold,
        )
        parts = parts_of(api, request) if api.parts else None
        if parts is not None:
            return self._large_requests.answer_in_parts(self._services, api, parts, context, request)
        return api.handle(self._services, context, request)

    async def _finish_large(
        self,
        api: Api,
        header: RequestHeader,
        decoding: Awaitable[Request],
        size_bytes: int,
        handled: "asyncio.Future[None] | None",
    ) -> Reply | None:
        try:
            request = await decoding
            result = self._result(api, header, request, size_bytes)
            if handled is not None and not handled.done():
                handled.set_result(None)
        except ProtocolError as error:
            raise self._refused(error) from error
        except Exception as error:
            raise self._failed(header, error) from error
        finally:
            del decoding  # It keeps the error that it raises, and that this frame.
        return await self._finish(api, header, result)

    async def _finish(self, api: Api, header: RequestHeader, result: HandlerResult) -> Reply | None:
        try:
            response = result if result is None or isinstance(result, Response) else await result
            time = self._times.running
            if response is None:
                if time is not None and time.taken_s >= time.due_at_s:
                    self._hold_back(header, time)
                return None
            if time is not None and (time.taken_s >= time.due_at_s or not api.is_hot):
                response = self._held_back(header, response, time)
            if not is_large(response, levels=HOT_LEVELS if api.is_hot else ALL_LEVELS):
                return self._encoded(header, response)
            try:
                return await self._large_requests.encode(header, response)
            except ProtocolError as error:
                return self._unencodable(header, response, error)
        except CloseConnection:
            raise
        except Exception as error:
            raise self._failed(header, error) from error

    def _refuse_version(self, header: RequestHeader) -> Reply:
        if header.api_key == ApiKey.API_VERSIONS:
            return encode_unsupported_api_versions(header.correlation_id, unsupported_version_response(APIS.values()))
        known = find_api(header.api_key)
        if known is not None and header.is_known:
            refusal = bare_refusal(header, known.response_type, ErrorCode.UNSUPPORTED_VERSION)
            if refusal is not None:
                return refusal
        # The answer's shape is unknown; the correlation id and the code are what can be said.
        return [_BARE_ERROR.pack(6, header.correlation_id, ErrorCode.UNSUPPORTED_VERSION)]

    def _unencodable(self, header: RequestHeader, response: Response, error: ProtocolError) -> Reply:
        """Something in the answer is longer or larger than the protocol has room for: it is the client's own words."""
        untold = self._shared.unencodable_lines.admit(self.loop.time())
        if untold is not None:
            logger.warning(
                "answer cannot be encoded api_key=%s api_version=%s client_id=%s peer=%s reason=%s untold=%s",
                header.api_key,
                header.api_version,
                header.client_id,
                self._connection.peer_host,
                error,
                untold,
            )
        refusal = bare_refusal(header, type(response), ErrorCode.UNKNOWN_SERVER_ERROR)
        if refusal is None:
            raise CloseConnection("the answer cannot be encoded")
        return refusal

    def _refused(self, error: ProtocolError) -> CloseConnection:
        untold = self._shared.refused_lines.admit(self.loop.time())
        if untold is not None:
            logger.info("request refused peer=%s reason=%s untold=%s", self._connection.peer_host, error, untold)
        return CloseConnection(str(error))

    def _failed(self, header: RequestHeader, error: Exception) -> CloseConnection:
        logger.error(
            "request failed api_key=%s api_version=%s client_id=%s peer=%s error=%s",
            header.api_key,
            header.api_version,
            header.client_id,
            self._connection.peer_host,
            repr(error),
            exc_info=error if self._shared.is_news(_kind_of_failure(header, error)) else None,
        )
        return CloseConnection("an internal error")


def _let_go(answer: "asyncio.Future[Response | None]", reply: "asyncio.Future[Reply | None]") -> None:
    if reply.cancelled():
        answer.cancel()


def _kind_of_failure(header: RequestHeader, error: Exception) -> tuple[object, ...]:
    """Which API failed, how, and where in the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = None if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
    return header.api_key, type(error), place


def bare_refusal(header: RequestHeader, response_type: type[Response], code: ErrorCode) -> Reply | None:
    """An answer with nothing but the code; None where this version has no room for one."""
    if "error_code" not in response_type.__struct_fields__:
        return None
    try:
        plain = encode_response(header.correlation_id, response_type(), header.api_version)
        refusal = encode_response(header.correlation_id, response_type(error_code=code), header.api_version)
    except ProtocolError:
        return None
    return None if refusal == plain else refusal


class PeerRequests:
    def __init__(self, node_id: NodeId, peers: PeerBus) -> None:
        self._node_id = node_id
        self._peers = peers
        self._handle: Callable[[Request, int], Awaitable[Response]] = _not_yet

    def serve(self, services: Services) -> None:
        """Serve requests from now on. What this node asks is part of what it serves with, so that comes second."""
        self._handle = partial(_handle_for_peer, services)
        self._peers.answer_requests(Channel.KAFKA, self.request_received)

    async def ask(
        self, node_id: NodeId, request: Request, version: int, response_type: type[ResponseType], timeout_ms: float
    ) -> ResponseType:
        """The node's answer; this node answers itself. Raises ``PeerError`` where there is none."""
        if node_id == self._node_id:
            return cast(ResponseType, await self._ask_self(request, version, timeout_ms))
        payload = b"".join([_PEER_START.pack(request.API_KEY, version), *encode(request, version)])
        return decode(response_type, await self._peers.request(Channel.KAFKA, node_id, payload, timeout_ms), version)

    async def _ask_self(self, request: Request, version: int, timeout_ms: float) -> Response:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._handle(request, version)
        except TimeoutError:
            raise PeerTimeout("this node did not answer itself in time") from None

    async def request_received(self, sender: Sender, payload: bytes) -> bytes:  # noqa: ARG002
        request, version = _read_from_peer(payload)
        return b"".join(encode(await self._handle(request, version), version))


async def _not_yet(request: Request, version: int) -> Response:
    raise PeerUnreachable(f"this node serves no {type(request).__name__} of version {version} yet")


async def _handle_for_peer(services: Services, request: Request, version: int) -> Response:
    context = RequestContext(api_version=version, client_id="peer", origin=_ANOTHER_NODE)
    result = APIS[request.API_KEY].handle(services, context, request)
    response = result if isinstance(result, Response) else await cast("asyncio.Future[Response | None]", result)
    assert response is not None  # Only Produce with acks=0 has none.
    return response


def _read_from_peer(payload: bytes) -> tuple[Request, int]:
    if len(payload) < _PEER_START.size:
        raise PeerProtocolError("a Kafka request without its API key")
    api_key, version = _PEER_START.unpack_from(payload)
    if api_key not in _SERVED_TO_PEERS:
        raise PeerProtocolError(f"no node asks for API {api_key}")
    api = APIS[api_key]
    if not api.min_version <= version <= api.max_version:
        raise PeerProtocolError(f"no node asks for version {version} of API {api_key}")
    try:
        return decode(api.request, payload, version, _PEER_START.size), version
    except ProtocolError as error:
        raise PeerProtocolError(str(error)) from None
