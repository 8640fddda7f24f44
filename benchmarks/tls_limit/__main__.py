"""``python -m benchmarks.tls_limit``: serve until it is ended."""

import argparse
import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.tls_limit.connections import READ_BYTES, TlsConnection, serve_plain
from benchmarks.tls_limit.logs import Logs

_HOST = "127.0.0.1"
_SYNC_THREADS = 8


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls_limit")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, required=True)
    parser.add_argument("--key-store", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sync", action="store_true", help="answer when a write is on the disk")
    options = parser.parse_args()
    options.data_dir.mkdir(parents=True, exist_ok=True)
    uvloop.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.key_store)
    memory = memoryview(bytearray(READ_BYTES))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(_SYNC_THREADS) as executor:
        logs = Logs(options.data_dir, executor if options.sync else None)
        await asyncio.start_server(partial(serve_plain, logs), _HOST, options.port)
        server = await loop.create_server(lambda: TlsConnection(context, logs, memory), _HOST, options.tls_port)
        await server.serve_forever()


if __name__ == "__main__":
    main()
