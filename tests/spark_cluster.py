"""Spark clusters of real processes from the installed package: a standalone master with workers, a Connect server."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.peers.child_process import ChildProcess, free_port

_HOME = Path(pyspark.__file__).parent
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_START_TIMEOUT_S = 120


class StandaloneCluster:
    def __init__(self, master: str, workers: list[ChildProcess]) -> None:
        self.master = master
        self.workers = workers


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[StandaloneCluster]:
    """A master and workers with one core each."""
    port = free_port()
    master_url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        process = _start(stack, folder / "master.log", "org.apache.spark.deploy.master.Master", *address)
        process.wait_for_output(_seen("New state: ALIVE"), "the Spark master", _START_TIMEOUT_S)
        started = []
        for number in range(workers):
            size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            own = ["--work-dir", str(folder / f"work-{number}"), master_url]
            log = folder / f"worker-{number}.log"
            started.append(_start(stack, log, "org.apache.spark.deploy.worker.Worker", *size, *own))
        for each in started:
            each.wait_for_output(_seen("Successfully registered"), "a Spark worker", _START_TIMEOUT_S)
        yield StandaloneCluster(master_url, started)


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on a local master; gives its URL."""
    port = free_port()
    (jar,) = (_HOME / "jars").glob("spark-connect_*.jar")
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": _QUICK_START,
    }
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    main_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with ExitStack() as stack:
        submit = ["--master", "local[2,4]", "--class", main_class, *options, str(jar)]
        process = _start(stack, folder / "connect.log", "org.apache.spark.deploy.SparkSubmit", *submit)
        process.wait_for_output(_seen("Spark Connect server started"), "the Spark Connect server", _START_TIMEOUT_S)
        yield f"sc://127.0.0.1:{port}"


def _start(stack: ExitStack, log: Path, *arguments: str) -> ChildProcess:
    environment = {
        "SPARK_HOME": str(_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_START,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = ["env", *[f"{key}={value}" for key, value in environment.items()], str(_HOME / "bin" / "spark-class")]
    process = ChildProcess([*command, *arguments], log)
    stack.callback(process.kill)
    return process


def _seen(line: str) -> Callable[[str], str | None]:
    return lambda output: line if line in output else None
