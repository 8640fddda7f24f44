"""Records what Apache Kafka says to every request of the matrix: ``python -m tests.compat.security_matrix``."""

import argparse
import tempfile
from pathlib import Path

from tests.compat.security_matrix.parts import outcomes_of
from tests.compat.security_matrix.recording import PATH, write
from tests.peers.jars import kafka_version


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--target", choices=["apache-kafka", "quorate"], default="apache-kafka")
    options.add_argument("--to", type=Path, default=PATH, help="the file that is written")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = outcomes_of(chosen.target, Path(folder))
    write(chosen.to, found, version=kafka_version())


if __name__ == "__main__":
    main()
