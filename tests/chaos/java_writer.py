"""The Java client among the writers: Kafka's own ``VerifiableProducer``, which tells of every record it wrote."""

import json
import shutil
import signal
from pathlib import Path

from tests.chaos.load import TOPIC, SharedHistory, Worker
from tests.peers.child_process import ChildProcess
from tests.peers.jars import PeersUnavailableError, java_command
from tests.simulation.replication.history import HistoryBroken

_MAIN_CLASS = "org.apache.kafka.tools.VerifiableProducer"
_RECORDS_A_SECOND = 200
_ENDS_WITHIN_S = 100
#: The tool would not retry, and so not be idempotent either; clients do and are.
_SETTINGS = """\
retries=2147483647
enable.idempotence=true
delivery.timeout.ms=300000
request.timeout.ms=5000
metadata.max.age.ms=2000
"""
#: What its values begin with. It is idempotent, so none may be there twice.
VALUE_PREFIX = "1"


class JavaWriter(Worker):
    """Make it in the main thread. Raises ``PeersUnavailableError`` where there is no Java, or no jars."""

    def __init__(self, shared: SharedHistory, bootstrap: str, folder: Path) -> None:
        super().__init__(shared, "java")
        if shutil.which("java") is None:
            raise PeersUnavailableError("java is not installed (make jvm)")
        self._output = folder / "java-writer.out"
        settings = folder / "java-writer.properties"
        settings.write_text(_SETTINGS)
        command = java_command(
            _MAIN_CLASS,
            *("--bootstrap-server", bootstrap),
            *("--topic", TOPIC),
            *("--throughput", str(_RECORDS_A_SECOND)),
            *("--acks", "-1"),
            *("--value-prefix", VALUE_PREFIX),
            *("--command-config", str(settings)),
        )
        self._process = ChildProcess(command, self._output)
        self._read_to = 0
        self.acknowledged = 0

    def step(self) -> None:
        if not self._process.running:
            raise HistoryBroken(f"the Java client ended: {self._process.output()[-500:]}")
        self._take_news()
        self.ends.wait(0.2)

    def finish(self) -> None:
        """It waits for what is on its way before it ends."""
        if self._process.stop(within_s=_ENDS_WITHIN_S) == -signal.SIGKILL:
            raise HistoryBroken(f"writes of the Java client hang: {self._process.output()[-500:]}")
        self._take_news()

    def _take_news(self) -> None:
        with self._output.open("rb") as output:
            output.seek(self._read_to)
            for line in output:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                if line.startswith(b"{"):
                    self._take(json.loads(line))

    def _take(self, news: dict[str, object]) -> None:
        if news["name"] == "producer_send_error":
            raise HistoryBroken(f"the Java client was told {news['message']} ({news['exception']})")
        if news["name"] == "producer_send_success":
            partition, offset = news["partition"], news["offset"]
            assert isinstance(partition, int)
            assert isinstance(offset, int)
            self.shared.acknowledged(partition, offset, str(news["value"]).encode())
            self.acknowledged += 1
