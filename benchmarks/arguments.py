"""The options of a run, as they are typed."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.contenders.kafka_backup import VARIABLE, WrongBinaryError, find_kafka_backup
from benchmarks.contenders.shapes import MAX_GB, MIN_GB
from benchmarks.systems import KAFKA_HEAP_MB, Durability


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Quorate beside Apache Kafka, as ratios.")
    parser.add_argument(
        "--quick", action="store_true", help="a few cases with durability os, about two minutes; not kept"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="NAME",
        help="measures whose names begin so, as produce-64k, not kept; or the parts node, cluster, loop, backup,"
        " restore, commands, data-source",
    )
    _add_node_options(parser)
    _add_cluster_options(parser)
    _add_contender_options(parser)
    options = parser.parse_args(arguments)
    try:
        options.kafka_backup = find_kafka_backup(options.kafka_backup)
    except WrongBinaryError as error:
        parser.error(str(error))
    if options.profile:
        options.systems = "quorate"
    if options.profile or options.quick:
        options.durability = options.durability or Durability.OS
    return options


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--durability", type=Durability, choices=list(Durability), help="one durability, not both")
    parser.add_argument("--systems", choices=("quorate", "apache-kafka"), help="one system alone; not kept")
    parser.add_argument("--kafka-heap-mb", type=int, default=KAFKA_HEAP_MB, help="Apache Kafka's heap, -Xms and -Xmx")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="Quorate alone under cProfile, whose statistics go to FILE"
    )


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rounds", type=int, help="of each kill, of freezes and of cuts in cluster-failover, for Quorate"
    )
    parser.add_argument("--kafka-rounds", type=int, help="the same for Apache Kafka: about 20 s a round")


def _add_contender_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic-gb",
        nargs="+",
        type=_gigabytes,
        metavar="GB",
        help="how large the topics of 1 KiB records are that are backed up, restored and read: as 0.1 1 4",
    )
    parser.add_argument("--kafka-backup", metavar="BINARY", help=f"the Rust program, a peer; or {VARIABLE} names it")


def _gigabytes(text: str) -> float:
    with suppress(ValueError):
        if MIN_GB <= float(text) <= MAX_GB:
            return float(text)
    raise argparse.ArgumentTypeError(f"a topic has {MIN_GB:g} to {MAX_GB:g} GB, not {text!r}")
