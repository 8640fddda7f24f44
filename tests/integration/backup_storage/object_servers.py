"""Local servers that speak S3: moto, SeaweedFS, and one that ignores conditions."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.eventually import eventually

BUCKET = "backups"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
# Moto tells by it which service is meant, and checks no signature; SeaweedFS without users wants none.
_MOTO_HEADERS = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test-key/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}


def program(name: str) -> str | None:
    """Beside the interpreter, or on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


@contextmanager
def moto(log: Path, **environment: str) -> Iterator[str]:
    """The endpoint of a moto server with the bucket made."""
    port = free_port()
    command = [str(program("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, log, environment):
        endpoint = f"http://127.0.0.1:{port}"
        _make_bucket(endpoint)
        yield endpoint


@contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    ports = [free_port() for _ in range(8)]
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"]
    options = [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-ip=127.0.0.1", f"-dir={folder}", "-volume.max=20"]
    with running([str(program("weed")), "server", "-s3", *options], folder / "server.log", {}):
        endpoint = f"http://127.0.0.1:{ports[6]}"
        _make_bucket(endpoint)
        yield endpoint


@contextmanager
def forgetful_server() -> Iterator[str]:
    """Takes every PUT, whatever its conditions: as some S3 look-alikes do."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forgetful)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Forgetful(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"ETag": '"1"'})

    def do_DELETE(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({}, b"<DeleteResult></DeleteResult>")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Tests are told nothing of single requests."""

    def _answer(self, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(200)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def open_multipart_uploads(endpoint: str) -> int:
    return _ask(f"{endpoint}/{BUCKET}?uploads", "GET").count(b"<UploadId>")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _make_bucket(endpoint: str) -> None:
    def made() -> bool:
        try:
            _ask(f"{endpoint}/{BUCKET}", "PUT")
        except OSError:
            return False
        return True

    eventually(made, f"the bucket at {endpoint}", within_s=60)


def _ask(url: str, method: str) -> bytes:
    try:
        return _ask_once(urllib.request.Request(url, method=method, headers=_MOTO_HEADERS))
    except urllib.error.HTTPError:
        return _ask_once(urllib.request.Request(url, method=method))


def _ask_once(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        # A server that finds the client's keys in its environment would make a user of them and ask for signatures.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=inherited | environment)
    try:
        yield
    finally:
        process.kill()  # Nothing of it is kept.
        process.wait()
