"""An identity provider on loopback, with one endpoint that answers what a test says."""

import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider:
    """Answers what the test says; keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"access_token": "t0ken", "expires_in": 300, "token_type": "Bearer"}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.url = ""


@contextmanager
def providing() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            provider.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(form)))
            self.send_response(provider.status)
            for name, value in provider.headers.items():
                self.send_header(name, value)
            self.end_headers()
            answer = provider.answer
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}/token"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join(10)
