"""From a frame to a handler and back to a frame.

Every request that has a correlation id is answered with it, whatever else is wrong. A request that cannot be read at
all ends its connection, and only that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from struct import Struct
from typing import Any

from quorate.broker.api import Api, HandlerResult
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
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.kernel.tasks import awaited_task
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.errors import ProtocolError, TooManyElements
from quorate.protocol.frames import (
    RequestHeader,
    decode_request_header,
    encode_response,
    encode_unsupported_api_versions,
)
from quorate.protocol.schema import Request, Response
from quorate.transport.connection import CloseConnection, ServerConnection
from quorate.transport.outbox import Reply

logger = logging.getLogger(__name__)

_BARE_ERROR = Struct(">iih")
_MOST_TOLD_FAILURES = 1000


class Dispatch:
    """What all connections of a node share."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.large_requests = LargeRequests(services.loop, services.executor, services.turns)
        #: Kinds of failed requests whose traceback is in the log.
        self._told_failures: set[object] = set()

    def serve(self, connection: ServerConnection) -> "Dispatcher":
        return Dispatcher(self, connection)

    def is_news(self, failure: object) -> bool:
        """A traceback is told once: who sends the same request again and again does not fill the log with it."""
        is_news = failure not in self._told_failures and len(self._told_failures) < _MOST_TOLD_FAILURES
        if is_news:
            self._told_failures.add(failure)
        return is_news


class Dispatcher:
    """Serves the frames of one connection."""

    def __init__(self, shared: Dispatch, connection: ServerConnection) -> None:
        self._shared = shared
        self._services = shared.services
        self._large_requests = shared.large_requests
        self._connection = connection
        self._mute = connection.mute
        self._hold = connection.hold

    def __call__(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        try:
            header = decode_request_header(frame)
            api = APIS.get(header.api_key)
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
            if result is None:
                return None
            if isinstance(result, Response) and (api.is_hot or not is_large(result)):
                try:
                    return encode_response(header.correlation_id, result, header.api_version)
                except ProtocolError as error:
                    return self._unencodable(header, result, error)
        except CloseConnection:
            raise
        except Exception as error:
            raise self._failed(header, error) from error
        return self._later(api, self._finish(api, header, result))

    def _later(self, api: Api, reply: Coroutine[Any, Any, Reply | None]) -> "asyncio.Future[Reply | None]":
        future = awaited_task(self._services.loop, reply)
        if not api.is_hot:
            self._connection.expect_bulky(future)
        return future

    def _result(self, api: Api, header: RequestHeader, request: Request, size_bytes: int) -> HandlerResult:
        context = RequestContext(
            api_version=header.api_version,
            client_id=header.client_id,
            client_host=self._connection.peer_host,
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
        return await self._finish(api, header, result)

    async def _finish(self, api: Api, header: RequestHeader, result: HandlerResult) -> Reply | None:
        try:
            response = result if result is None or isinstance(result, Response) else await result
            if response is None:
                return None
            try:
                if is_large(response, levels=HOT_LEVELS if api.is_hot else ALL_LEVELS):
                    return await self._large_requests.encode(header, response)
                return encode_response(header.correlation_id, response, header.api_version)
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
            refusal = _bare_refusal(header, known.response_type, ErrorCode.UNSUPPORTED_VERSION)
            if refusal is not None:
                return refusal
        # The answer's shape is unknown; the correlation id and the code are what can be said.
        return [_BARE_ERROR.pack(6, header.correlation_id, ErrorCode.UNSUPPORTED_VERSION)]

    def _unencodable(self, header: RequestHeader, response: Response, error: ProtocolError) -> Reply:
        """Something in the answer is longer or larger than the protocol has room for: it is the client's own words."""
        logger.warning(
            "answer cannot be encoded api_key=%s api_version=%s client_id=%s peer=%s reason=%s",
            header.api_key,
            header.api_version,
            header.client_id,
            self._connection.peer_host,
            error,
        )
        refusal = _bare_refusal(header, type(response), ErrorCode.UNKNOWN_SERVER_ERROR)
        if refusal is None:
            raise CloseConnection("the answer cannot be encoded")
        return refusal

    def _refused(self, error: ProtocolError) -> CloseConnection:
        logger.info("request refused peer=%s reason=%s", self._connection.peer_host, error)
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


def _kind_of_failure(header: RequestHeader, error: Exception) -> tuple[object, ...]:
    """Which API failed, how, and where in the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = None if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
    return header.api_key, type(error), place


def _bare_refusal(header: RequestHeader, response_type: type[Response], code: ErrorCode) -> Reply | None:
    """An answer with nothing but the code; None where this version has no room for one."""
    if "error_code" not in response_type.__struct_fields__:
        return None
    try:
        plain = encode_response(header.correlation_id, response_type(), header.api_version)
        refusal = encode_response(header.correlation_id, response_type(error_code=code), header.api_version)
    except ProtocolError:
        return None
    return None if refusal == plain else refusal
