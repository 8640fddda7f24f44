"""As much of Google Cloud Storage's XML API as the client library uses, in memory: it is no proof of what Google does,
but of what we send, and that its way to put an object only if it is absent is the one that is asked for."""

import hashlib
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "backups"
# An account with which the library asks for no token.
_ACCOUNT = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
ENVIRONMENT = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(_ACCOUNT)}
_CREATE_ONLY = ("x-goog-if-generation-match", "0")


@contextmanager
def google_server() -> Iterator[str]:
    """The endpoint of a server with the bucket made."""
    server = _Server(("127.0.0.1", 0), _Requests)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.changing = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count(1)


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        bucket, name, query = self._target()
        if bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        elif "list-type" in query:
            self._list(query.get("prefix", ""), query.get("delimiter", ""))
        elif name not in self.server.objects:
            self._refuse(404, "NoSuchKey")
        else:
            self._send(self.server.objects[name])

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        bucket, name, query = self._target()
        content = self._body()
        if bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        elif "uploadId" in query:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = content
            self._answer(200, headers={"ETag": _tag(content)})
        else:
            self._put(name, content, only_create=self.headers.get(_CREATE_ONLY[0]) == _CREATE_ONLY[1])

    def do_POST(self) -> None:
        _, name, query = self._target()
        body = self._body()
        if "uploads" in query:
            upload_id = str(next(self.server.numbers))
            self.server.uploads[upload_id] = {}
            self._answer(200, _xml("InitiateMultipartUploadResult", f"<UploadId>{upload_id}</UploadId>"))
        else:
            parts = self.server.uploads.pop(query["uploadId"])
            wanted = [int(each.text or "") for each in ElementTree.fromstring(body).iter() if "PartNumber" in each.tag]
            self.server.objects[name] = content = b"".join(parts[number] for number in wanted)
            self._answer(200, _xml("CompleteMultipartUploadResult", f"<ETag>{escape(_tag(content))}</ETag>"))

    def do_DELETE(self) -> None:
        _, name, query = self._target()
        if "uploadId" in query:
            self.server.uploads.pop(query["uploadId"], None)
            self._answer(204)
        elif self.server.objects.pop(name, None) is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._answer(204)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Tests are told nothing of single requests."""

    def _put(self, name: str, content: bytes, *, only_create: bool) -> None:
        with self.server.changing:
            is_refused = only_create and name in self.server.objects
            if not is_refused:
                self.server.objects[name] = content
        if is_refused:
            self._refuse(412, "PreconditionFailed")
        else:
            self._answer(200, headers={"ETag": _tag(content)})

    def _list(self, prefix: str, delimiter: str) -> None:
        entries, folders = "", set()
        for name, content in sorted(self.server.objects.items()):
            if not name.startswith(prefix):
                continue
            below, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if found:
                folders.add(prefix + below + delimiter)
                continue
            entries += (
                f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<Size>{len(content)}</Size><ETag>{escape(_tag(content))}</ETag></Contents>"
            )
        entries += "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        self._answer(200, _xml("ListBucketResult", entries))

    def _send(self, content: bytes) -> None:
        headers = {"ETag": _tag(content), "Last-Modified": formatdate(usegmt=True)}
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, content, headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        piece = content[int(first) : int(last) + 1]
        headers["Content-Range"] = f"bytes {first}-{int(first) + len(piece) - 1}/{len(content)}"
        self._answer(206, piece, headers)

    def _target(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).strip("/").partition("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        return bucket, name, {key: values[0] for key, values in query.items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, _xml("Error", f"<Code>{code}</Code>"))

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ((headers or {}) | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def _xml(root: str, content: str) -> bytes:
    return f"<?xml version='1.0' encoding='UTF-8'?><{root}>{content}</{root}>".encode()
