"""``python -m benchmarks``: run, print the table, keep the results."""

import argparse
import pstats
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks import cases
from benchmarks.arguments import parse_arguments
from benchmarks.backup import cases as backup
from benchmarks.backup.measure import measure_backup
from benchmarks.cases import Selection
from benchmarks.certificates import make_certificates
from benchmarks.cluster import cases as cluster
from benchmarks.cluster.measure import Choice, measure_cluster
from benchmarks.commands import cases as commands
from benchmarks.commands.measure import measure_commands
from benchmarks.connection import RequestFailed
from benchmarks.contenders.choice import ContenderChoice
from benchmarks.contenders.contender import ContenderFailed
from benchmarks.contenders.shapes import QUICK_SIZES, Sizes
from benchmarks.contenders.topics import WrongTopicError
from benchmarks.data_source import cases as data_source
from benchmarks.data_source.measure import measure_data_source
from benchmarks.loop import cases as loop
from benchmarks.loop.measure import measure_loop
from benchmarks.report import Environment, describe_environment, make_report, render, save
from benchmarks.restore import cases as restore
from benchmarks.restore.measure import measure_restore
from benchmarks.runner import Runner, Settings
from benchmarks.samples import Sample
from benchmarks.systems import ApacheKafkaSystem, Durability, QuorateSystem, System
from benchmarks.tls_limit.system import TlsLimitSystem
from tests.peers.jars import PeersUnavailableError, kafka_classpath

FULL = Settings(
    repeats=3, judged_repeats=9, produce_seconds=1.5, fetch_seconds=0.7, warm_up_timeout_s=75, start_repeats=5
)
QUICK = Settings(
    repeats=2,
    judged_repeats=2,
    produce_seconds=0.7,
    fetch_seconds=0.4,
    warm_up_timeout_s=40,
    start_repeats=2,
    transfers=cases.QUICK_TRANSFERS,
    tls_transfers=cases.QUICK_TLS_TRANSFERS,
)
PROFILE_LINES = 45
_NODE = "node"


def main() -> int:
    options = parse_arguments()
    reason = _why_without_apache_kafka(options)
    settings = QUICK if options.quick else FULL
    # Before the run: the commit that is named must be the one that was started.
    environment = describe_environment(None if reason else _kafka_version(), reason, options.kafka_heap_mb)
    try:
        if _wants_node(options):
            _measure_node(options, settings, environment)
        if _wants_cluster(options):
            measure_cluster(_cluster_choice(options), environment, _say)
        if _wants_loop(options):
            measure_loop(_words(options, loop.PREFIX), environment, _say, quick=options.quick)
        if _wants_backup(options):
            measure_backup(_contender_choice(options), environment, _say)
        if _wants_restore(options):
            measure_restore(_contender_choice(options), environment, _say)
        if _wants_in_full_runs(options, commands.PREFIX):
            measure_commands(options.only, environment, _say, quick=options.quick)
        if _wants_data_source(options):
            measure_data_source(_contender_choice(options), environment, _say)
    except (RequestFailed, ContenderFailed, WrongTopicError) as error:
        print(f"The benchmark ended early: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; nothing more is kept.", file=sys.stderr)
        return 130
    return 0


def _measure_node(options: argparse.Namespace, settings: Settings, environment: Environment) -> None:
    samples = list(_run(options, settings, with_kafka=environment.apache_kafka is not None))
    report = make_report(environment, settings, samples)
    print(render(report))
    if options.profile:
        _print_profile(options.profile)
    elif not (options.quick or options.systems or _node_words(options)):
        print(f"kept: {save(report)}")


def _wants_node(options: argparse.Namespace) -> bool:
    return not options.only or _NODE in options.only or bool(_node_words(options))


def _node_words(options: argparse.Namespace) -> list[str]:
    """Which measures of one node are asked for; none where all are."""
    parts = (backup, cluster, commands, data_source, loop, restore)
    others = (*(part.PREFIX for part in parts), _NODE)
    return [word for word in options.only if not word.startswith(others)]


def _wants_cluster(options: argparse.Namespace) -> bool:
    return _wants_in_full_runs(options, cluster.PREFIX)


def _wants_loop(options: argparse.Namespace) -> bool:
    return options.systems != "apache-kafka" and _wants_in_full_runs(options, loop.PREFIX)


def _words(options: argparse.Namespace, prefix: str) -> tuple[str, ...]:
    return tuple(word for word in options.only if word.startswith(prefix))


def _cluster_choice(options: argparse.Namespace) -> Choice:
    return Choice(
        words=_words(options, cluster.PREFIX),
        quick=options.quick,
        durabilities=(options.durability,) if options.durability else tuple(Durability),
        systems=options.systems,
        profile=options.profile,
        rounds=options.rounds,
        apache_kafka_rounds=options.kafka_rounds,
    )


def _wants_backup(options: argparse.Namespace) -> bool:
    """Not where the options are about the node: its profile, or one of the two systems."""
    if options.systems or options.profile:
        return False
    return not options.only or any(word.startswith(backup.PREFIX) for word in options.only)


def _wants_restore(options: argparse.Namespace) -> bool:
    return _wants_in_full_runs(options, restore.PREFIX)


def _wants_data_source(options: argparse.Namespace) -> bool:
    return _wants_in_full_runs(options, data_source.PREFIX)


def _contender_choice(options: argparse.Namespace) -> ContenderChoice:
    sizes = QUICK_SIZES if options.quick else Sizes()
    if options.topic_gb:
        sizes = msgspec.structs.replace(sizes, topics_gb=tuple(options.topic_gb))
    return ContenderChoice(
        words=tuple(options.only), quick=options.quick, sizes=sizes, kafka_backup=options.kafka_backup
    )


def _wants_in_full_runs(options: argparse.Namespace, prefix: str) -> bool:
    """Unless asked for by name, not in a quick run, nor where the options are about one node or one system."""
    if not options.only:
        return not (options.systems or options.profile or options.quick)
    return any(word.startswith(prefix) for word in options.only)


def _why_without_apache_kafka(options: argparse.Namespace) -> str | None:
    if options.systems == "quorate":
        return "only Quorate was asked for"
    try:
        kafka_classpath()
    except PeersUnavailableError as error:
        print(f"Measuring Quorate alone: {error}", file=sys.stderr)
        return str(error)
    return None


def _run(options: argparse.Namespace, settings: Settings, *, with_kafka: bool) -> Iterator[Sample]:
    selection = Selection(words=tuple(_node_words(options)))
    runner = Runner(settings, selection, _say)
    durabilities = [options.durability] if options.durability else list(Durability)
    for position, durability in enumerate(durabilities):
        if selection.wants_any(cases.PLAIN_MEASURES):
            with _systems(options, durability, with_kafka=with_kafka) as systems:
                if position == 0 and not options.profile:
                    yield from runner.measure_start(systems, durability)
                yield from runner.measure_load(systems, durability)
        if _wants_tls(options, selection):
            with _systems(options, durability, with_kafka=with_kafka, over_tls=True) as systems:
                yield from runner.measure_tls(systems, durability)


def _wants_tls(options: argparse.Namespace, selection: Selection) -> bool:
    """In quick runs, and those that profile one node, only by name."""
    in_part = options.quick or options.profile
    if in_part and selection.wants_any(cases.PLAIN_MEASURES):
        return False
    return selection.wants_any(cases.TLS_MEASURES)


def _wants_limit(options: argparse.Namespace) -> bool:
    """Where it has something to be held against: what is written over TLS."""
    if options.profile or options.systems == "apache-kafka":
        return False
    selection = Selection(words=tuple(_node_words(options)))
    return selection.wants_any(transfer.produce_name for transfer in cases.TLS_TRANSFERS)


@contextmanager
def _systems(
    options: argparse.Namespace, durability: Durability, *, with_kafka: bool, over_tls: bool = False
) -> Iterator[Sequence[System]]:
    with ExitStack() as stack:
        certificates = None
        if over_tls:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-benchmark-tls-"))
            certificates = make_certificates(Path(folder))
        systems: list[System] = []
        if options.systems != "apache-kafka":
            folder = tempfile.mkdtemp(prefix="quorate-benchmark-")
            systems.append(QuorateSystem(Path(folder), durability, options.profile, certificates))
        if with_kafka:
            systems.append(ApacheKafkaSystem(durability, options.kafka_heap_mb, certificates))
        if certificates is not None and _wants_limit(options):
            folder = tempfile.mkdtemp(prefix="quorate-benchmark-limit-")
            systems.append(TlsLimitSystem(Path(folder), durability, certificates))
        for system in systems:
            stack.callback(system.discard)
            stack.callback(system.stop)
        yield systems


def _kafka_version() -> str:
    jar = next(path for path in kafka_classpath().split(":") if "/kafka_2." in path)
    return Path(jar).stem.rpartition("-")[2]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _print_profile(path: Path) -> None:
    statistics = pstats.Stats(str(path))
    statistics.strip_dirs().sort_stats("tottime").print_stats(PROFILE_LINES)


if __name__ == "__main__":
    sys.exit(main())
