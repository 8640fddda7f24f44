"""Whole commands with a Spark of their own and with a warm one, in turns, on a cluster of three nodes; the page."""

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec
from confluent_kafka import Producer

from benchmarks.cases import Selection
from benchmarks.commands import cases
from benchmarks.commands.cases import GOAL_S, Case, CommandSettings, Way
from benchmarks.commands.watched_command import Workplace
from benchmarks.report import Environment, save_page, table
from benchmarks.turns import in_turn
from quorate.testing import ClusterInProcess

_QUORATE = str(Path(sys.executable).parent / "quorate")
_TOPIC = "orders"
_KEEP_WARM = "10m"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    case: str
    way: Way
    seconds: float
    cpu_seconds: float


class CommandReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    settings: CommandSettings
    load_before: float  # Of the machine; the goals are meant for one that does nothing else.
    runs: list[Run]


def measure_commands(
    words: Sequence[str], environment: Environment, say: Callable[[str], None], *, quick: bool
) -> None:
    """Kept where it is whole."""
    settings = cases.QUICK if quick else cases.FULL
    load_before = os.getloadavg()[0]
    logging.getLogger("quorate").setLevel(logging.ERROR)  # Of the cluster in this process, that it is slow or ends.
    runner = CommandRunner(settings, Selection(words=tuple(words)), say)
    runner.measure()
    report = CommandReport(environment=environment, settings=settings, load_before=load_before, runs=runner.runs)
    print(render(report))
    if not quick and (not words or cases.PREFIX in words):
        page = save_page(report, f"{environment.date}-{environment.commit}-commands", render(report))
        print(f"kept: {page}")


class CommandRunner:
    """Who goes first changes from repeat to repeat. Each way has its own storage, and both find the same records."""

    def __init__(self, settings: CommandSettings, selection: Selection, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._cases = [case for case in cases.CASES if selection.wants(case.name)]
        self._say = say
        self.runs: list[Run] = []

    def measure(self) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="quorate-benchmark-commands-") as name,
            ClusterInProcess(nodes=3) as cluster,
            _workplace(Path(name)) as work,
        ):
            configs = {way: _write_config(Path(name), way, cluster.bootstrap_servers) for way in Way}
            _produce(cluster.bootstrap_servers, self._settings.first_records)
            for way in Way:  # The second run on a machine, and a Spark that is warm.
                work.run(_command("backup", way, configs[way]))
            for case in self._cases:
                for repeat in range(self._settings.repeats):
                    _produce(cluster.bootstrap_servers, case.new_records)
                    for way in in_turn(list(Way), repeat):
                        self._run(case, way, work, configs[way])

    def _run(self, case: Case, way: Way, work: Workplace, config: Path) -> None:
        cost = work.run(_command(case.command, way, config))
        self._say(f"{case.name} with {way}: {cost.seconds:.2f} s, {cost.cpu_seconds:.2f} CPU s")
        self.runs.append(Run(case=case.name, way=way, seconds=cost.seconds, cpu_seconds=cost.cpu_seconds))


def render(report: CommandReport) -> str:
    environment = report.environment
    rows = [["command", "Spark", "seconds, median", "least", "CPU seconds, median", "goal"]]
    for case in dict.fromkeys(run.case for run in report.runs):
        for way in Way:
            runs = [run for run in report.runs if (run.case, run.way) == (case, way)]
            seconds = [run.seconds for run in runs]
            cpu_s = median(run.cpu_seconds for run in runs)
            goal_s = GOAL_S[way]
            verdict = f"{goal_s} s, {'met' if median(seconds) <= goal_s else 'missed'}"
            rows.append([case, way, f"{median(seconds):.2f}", f"{min(seconds):.2f}", f"{cpu_s:.2f}", verdict])
        ratio = _ratio(report.runs, case)
        rows.append([case, "own / warm", f"{ratio:.1f}", "", "", ""])
    lines = [
        f"# Whole commands of Quorate {environment.commit}, {environment.date}",
        "",
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        f"- Python {environment.python}; {report.settings.repeats} repeats in turns, as typed, from the second run on",
        f"- Load of the machine before the run: {report.load_before:.1f}; the goals are for one that does nothing else",
        "- CPU seconds of all that works for the command, its JVM and Spark's workers too",
        "",
        *table(rows),
    ]
    return "\n".join(lines) + "\n"


def _ratio(runs: Sequence[Run], case: str) -> float:
    """The median over runs that followed each other."""
    own, warm = ([run.seconds for run in runs if (run.case, run.way) == (case, way)] for way in Way)
    return median(first / second for first, second in zip(own, warm, strict=True))


@contextmanager
def _workplace(folder: Path) -> Iterator[Workplace]:
    temporary = folder / "tmp"
    temporary.mkdir()
    work = Workplace(temporary)
    try:
        yield work
    finally:
        subprocess.run([_QUORATE, "spark", "stop"], env=work.environment, stdout=subprocess.DEVNULL, check=False)


def _command(command: str, way: Way, config: Path) -> list[str]:
    keep_warm = ["--keep-warm", _KEEP_WARM if way is Way.WARM else "off"]
    if command == "backup":
        return [_QUORATE, "backup", "--config", str(config), *keep_warm]
    storage: str = json.loads(config.read_text())["storage"]["url"]
    return [_QUORATE, command, "--storage", storage, "--backup-id", "nightly", "--deep", *keep_warm]


def _write_config(folder: Path, way: Way, bootstrap_servers: str) -> Path:
    config = folder / f"{way.name.lower()}.yaml"
    content = {
        "backup_id": "nightly",
        "source": {"bootstrap_servers": bootstrap_servers.split(",")},
        "storage": {"url": f"file://{folder}/{way.name.lower()}"},
        "backup": {"mode": "incremental"},
    }
    config.write_text(json.dumps(content))
    return config


def _produce(bootstrap_servers: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number in range(count):
        producer.produce(_TOPIC, key=str(number), value=f"{number}:".ljust(200, "v"))
        producer.poll(0)
    producer.flush()
