"""The keys of a tokens' issuer: fetched from its JWKS document off the loop, and again as ``KeySetRefresh`` decides.

The document is read from a file or over HTTP, of a bounded size, in bounded time. A worker reads it, and a node that
stops waits for its workers. So an issuer that sends a byte now and then is cut off. It may send the reader elsewhere,
but from https: to https: alone: who answers there vouches for every token.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from threading import Timer
from typing import IO, Any, Final
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from quorate.kernel.errors import QuorateError
from quorate.kernel.ports import Clock
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.security.access_tokens import AccessToken, InvalidToken
from quorate.security.sasl.settings import TokenSettings

logger = logging.getLogger(__name__)

#: A token with a key that is not known may be forged: strangers do not decide how often the issuer is asked.
_MIN_INTERVAL_MS: Final = 10_000
_MAX_BACKOFF_MS: Final = 300_000
#: Of one answer of the other end, and of the whole.
_TIMEOUT_S: Final = 10.0
_DEADLINE_S: Final = 30.0
_MAX_BYTES: Final = 1 << 20


class IssuerKeys:
    def __init__(
        self, settings: TokenSettings, clock: Clock, *, loop: asyncio.AbstractEventLoop, executor: Executor
    ) -> None:
        # Imported only where there are tokens to be verified: it takes a while.
        from quorate.security.json_web_tokens import parse_key_set, verify_token

        self._settings = settings
        self._parse: Callable[[bytes], Sequence[Any]] = parse_key_set
        self._verify = verify_token
        self._clock = clock
        self._loop = loop
        self._executor = executor
        self._refresh = KeySetRefresh(settings.refresh_ms, clock.now_ms())
        self._is_due = asyncio.Event()
        self._keys: Sequence[Any] = ()
        self._fetching = TaskScope(loop, logged_failures(logger, "fetching the keys of the tokens' issuer"))

    def start(self) -> None:
        self._fetching.spawn(self._fetch_when_due())

    async def stop(self) -> None:
        await self._fetching.close()

    def verify(self, token: str) -> AccessToken:
        """What a genuine token says; raises ``InvalidToken``."""
        if not self._keys:
            raise InvalidToken("the keys of the issuer are not known here yet", unknown_key=True)
        return self._verify(token, self._keys, self._settings.rules, self._clock.now_ms())

    def key_missed(self) -> None:
        self._refresh.key_missed(self._clock.now_ms())
        self._is_due.set()

    async def _fetch_when_due(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            if self._refresh.is_due(now_ms):
                await self._fetch(now_ms)
                continue
            due_ms = self._refresh.due_ms()
            assert due_ms is not None
            self._is_due.clear()
            try:
                async with asyncio.timeout((due_ms - now_ms) / 1000):
                    await self._is_due.wait()
            except TimeoutError:
                continue

    async def _fetch(self, now_ms: int) -> None:
        url = self._settings.key_set_url
        self._refresh.began(now_ms)
        try:
            keys = await self._loop.run_in_executor(self._executor, lambda: self._parse(read_key_set(url)))
        except QuorateError as error:
            self._refresh.failed(self._clock.now_ms())
            logger.warning("keys of issuer not fetched url=%s keys=%s reason=%s", url, len(self._keys), error)
            return
        self._refresh.fetched(self._clock.now_ms())
        if not self._keys:
            logger.info("keys of issuer fetched url=%s keys=%s", url, len(keys))
        self._keys = keys


class KeySetRefresh:
    """Keys are fetched at the start, at intervals, and soon after a token came whose key is not among them.

    While fetching fails the keys that are there stay good: an issuer that is away locks nobody out.
    """

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._due_ms = now_ms
        self._began_ms: int | None = None
        self._is_fetching = False
        self._failures = 0

    def key_missed(self, now_ms: int) -> None:
        """A token's key is not known here."""
        self._due_ms = min(self._due_ms, max(now_ms, self._earliest_ms(now_ms)))

    def is_due(self, now_ms: int) -> bool:
        return not self._is_fetching and now_ms >= self._due_ms

    def due_ms(self) -> int | None:
        """When to ask again; None while a fetch is under way."""
        return None if self._is_fetching else self._due_ms

    def began(self, now_ms: int) -> None:
        self._is_fetching = True
        self._began_ms = now_ms

    def fetched(self, now_ms: int) -> None:
        self._is_fetching = False
        self._failures = 0
        self._due_ms = now_ms + self._interval_ms

    def failed(self, now_ms: int) -> None:
        self._is_fetching = False
        self._failures += 1
        backoff_ms = min(_MAX_BACKOFF_MS, _MIN_INTERVAL_MS * 2 ** min(self._failures - 1, 10))
        self._due_ms = now_ms + min(backoff_ms, self._interval_ms)

    def _earliest_ms(self, now_ms: int) -> int:
        return now_ms if self._began_ms is None else self._began_ms + _MIN_INTERVAL_MS * max(1, self._failures)


def read_key_set(url: str, deadline_s: float = _DEADLINE_S) -> bytes:
    """The content of the document; QuorateError says why there is none. Blocks."""
    try:
        content = _read_file(url) if url.lower().startswith("file:") else _read_over_http(url, deadline_s)
    except (OSError, HTTPException, ValueError) as error:
        raise QuorateError(f"it cannot be read: {error}") from None
    if len(content) > _MAX_BYTES:
        raise QuorateError(f"it is longer than {_MAX_BYTES} bytes")
    return content


def _read_file(url: str) -> bytes:
    path = Path(unquote(urlsplit(url).path))
    if path.exists() and not path.is_file():
        raise QuorateError(f"{path} is no file")  # A pipe would be waited for.
    with path.open("rb") as file:
        return file.read(_MAX_BYTES + 1)


def _read_over_http(url: str, deadline_s: float) -> bytes:
    sockets: list[socket.socket] = []
    opener = build_opener(_Http(sockets.append), _Https(sockets.append), _SafeRedirects())
    with _ended_after(deadline_s, sockets) as has_passed, _told_as_late(has_passed):
        with opener.open(url, timeout=_TIMEOUT_S) as answer:
            content = bytes(answer.read(_MAX_BYTES + 1))
        if not has_passed():
            return content
    raise QuorateError(f"it did not come within {deadline_s:g} s")


@contextmanager
def _told_as_late(has_passed: Callable[[], bool]) -> Iterator[None]:
    """Whatever a connection says that was cut off is told as what it is: too late."""
    try:
        yield
    except (OSError, HTTPException, ValueError):
        if not has_passed():
            raise


@contextmanager
def _ended_after(deadline_s: float, sockets: list[socket.socket]) -> Iterator[Callable[[], bool]]:
    ended: list[bool] = []

    def end() -> None:
        ended.append(True)
        for each in tuple(sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    timer = Timer(deadline_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bool(ended)
    finally:
        timer.cancel()
        timer.join()
        for each in sockets:
            each.close()


Note = Callable[[socket.socket], None]


def _noted(kind: type[HTTPConnection], note: Note, *args: Any, **kwargs: Any) -> HTTPConnection:
    """Its socket is told before TLS begins: as another one, since whoever reads takes the first for itself."""
    connection: Any = kind(*args, **kwargs)
    create = connection._create_connection

    def created(*where: Any, **how: Any) -> socket.socket:
        made: socket.socket = create(*where, **how)
        note(made.dup())
        return made

    connection._create_connection = created
    return connection  # type: ignore[no-any-return]


class _Http(HTTPHandler):
    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def http_open(self, req: Request) -> HTTPResponse:
        opened: HTTPResponse = self.do_open(partial(_noted, HTTPConnection, self._note), req)
        return opened


class _Https(HTTPSHandler):
    def __init__(self, note: Note) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(context=self._tls)
        self._note = note

    def https_open(self, req: Request) -> HTTPResponse:
        make = partial(_noted, HTTPSConnection, self._note, context=self._tls)
        opened: HTTPResponse = self.do_open(make, req)
        return opened


class _SafeRedirects(HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - as the library has it
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        scheme = urlsplit(newurl).scheme.lower()
        if scheme != "https" and (scheme != "http" or req.type != "http"):
            raise URLError(f"it is sent from {req.type}: to {scheme}:")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
