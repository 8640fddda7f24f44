"""``python -m benchmarks.instructions``: how many instructions a node executes for one produced batch, under valgrind.

Counted, not timed, so a busy machine hardly changes it: two runs of one node that differ only in how many batches they
are sent; the difference, divided by the batches, leaves out the start, the first requests and the end.
"""

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks import wire
from benchmarks.connection import Connection
from tests.peers.child_process import free_port

TOPIC = "counted"
VALUE_SIZE_BYTES = 1024
FEW, MANY = 1_000, 4_000
BATCH_SIZES_BYTES = {"1rec": 1, "16k": 16 * 1024}
START_TIMEOUT_S = 180.0
_REFERENCES = re.compile(r"I\s+refs:\s+([\d,]+)")


def main() -> None:
    options = _parse_arguments()
    for name, batch_size_bytes in BATCH_SIZES_BYTES.items():
        counts = [_instructions_per_batch(batch_size_bytes) for _ in range(options.repeats)]
        print(f"{name}: {statistics.median(counts):,.0f} instructions a batch, {min(counts):,} to {max(counts):,}")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--repeats", type=int, default=1, help="pairs of runs for each size of a batch")
    return parser.parse_args()


def _instructions_per_batch(batch_size_bytes: int) -> int:
    few, many = (_instructions(batch_size_bytes, count) for count in (FEW, MANY))
    return (many - few) // (MANY - FEW)


def _instructions(batch_size_bytes: int, batch_count: int) -> int:
    """Of a node's whole life in which it is sent so many batches, one after the other."""
    records = wire.records_that_fit(batch_size_bytes, VALUE_SIZE_BYTES)
    batch = wire.build_batch(records, VALUE_SIZE_BYTES, Random(1), int(time.time() * 1000))
    with tempfile.TemporaryDirectory(prefix="quorate-instructions-") as folder:
        output = Path(folder) / "node.log"
        port = free_port()
        process = _start_node(Path(folder), port, output)
        try:
            connection = _connect(port, process, output)
            with connection:
                connection.create_topic(TOPIC, 1)
                for _ in range(batch_count):
                    connection.write_until_acknowledged(TOPIC, 0, batch, time.perf_counter() + START_TIMEOUT_S)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        return _read_count(output)


def _start_node(folder: Path, port: int, output: Path) -> subprocess.Popen[bytes]:
    config = folder / "node.toml"
    config.write_text(f'node_id = 7\ndata_dir = "{folder / "data"}"\nlisten = "127.0.0.1:{port}"\ndurability = "os"\n')
    counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    node = [sys.executable, str(Path(sys.executable).parent / "quorate"), "serve", "--config", str(config)]
    with output.open("wb") as log:
        return subprocess.Popen([*counter, *node], stdout=log, stderr=log)


def _connect(port: int, process: subprocess.Popen[bytes], output: Path) -> Connection:
    deadline = time.perf_counter() + START_TIMEOUT_S
    while True:
        try:
            return Connection(("127.0.0.1", port), START_TIMEOUT_S)
        except OSError:
            if process.poll() is not None or time.perf_counter() > deadline:
                raise SystemExit(f"the node did not start:\n{output.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.2)


def _read_count(output: Path) -> int:
    found = _REFERENCES.search(output.read_text(errors="replace"))
    if found is None:
        raise SystemExit(f"valgrind told no count:\n{output.read_text(errors='replace')[-2000:]}")
    return int(found[1].replace(",", ""))


if __name__ == "__main__":
    main()
