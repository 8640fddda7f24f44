"""A stock producer in a process of its own: confluent-kafka with its defaults, so ``acks=all`` and a linger of 5 ms.

It hands over a record every 2 ms for one partition, and keeps when each was handed over and when it was acknowledged,
by the clock that all processes of a machine share. Every 50 ms it writes to the other partitions, too, so that it knows
more nodes than one, as a producer of a topic does. ``ProduceProbe.java`` is the same for the Java client, and the
answers are those that ``probe.py`` reads.
"""

import bisect
import sys
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

_INTERVAL_NS = 2_000_000
_STEADY_NS = 300_000_000
_SENDS_PER_ROUND = 25
_VALUE = bytes(100)


class Probe:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._partitions = partitions
        self._sends = 0
        self._partition = -1
        # Of the current partition, in the order of acknowledgement: when, and when the record was handed over.
        self._acknowledged_ns: list[int] = []
        self._handed_over_ns: list[int] = []
        self._failed = 0
        self._lock = threading.Lock()

    def run(self) -> None:
        due_ns = time.monotonic_ns()
        while True:
            now_ns = time.monotonic_ns()
            if now_ns >= due_ns:
                due_ns = max(due_ns + _INTERVAL_NS, now_ns - _INTERVAL_NS)
                self._send(now_ns)
            self._producer.poll(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))

    def switch_to(self, partition: int) -> str:
        with self._lock:
            self._partition = partition
            self._acknowledged_ns, self._handed_over_ns, self._failed = [], [], 0
        return "ok"

    def acknowledged_lately(self) -> str:
        with self._lock:
            since = bisect.bisect_left(self._acknowledged_ns, time.monotonic_ns() - _STEADY_NS)
            return str(len(self._acknowledged_ns) - since)

    def first_acknowledged(self, handed_over_after_ns: int) -> str:
        """When the first record that was handed over later was acknowledged, or 0; and how many have failed."""
        with self._lock:
            first_ns = next(
                (
                    acknowledged_ns
                    for acknowledged_ns, handed_over_ns in zip(self._acknowledged_ns, self._handed_over_ns, strict=True)
                    if handed_over_ns > handed_over_after_ns
                ),
                0,
            )
            return f"{first_ns} {self._failed}"

    def _send(self, now_ns: int) -> None:
        partition = self._partition
        if partition < 0:
            return

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            with self._lock:
                if partition != self._partition:
                    return
                if error is not None:
                    self._failed += 1
                    return
                self._acknowledged_ns.append(time.monotonic_ns())
                self._handed_over_ns.append(now_ns)

        try:
            self._producer.produce(self._topic, _VALUE, partition=partition, on_delivery=on_delivery)
            self._sends += 1
            if self._sends % _SENDS_PER_ROUND == 0:
                for other in set(range(self._partitions)) - {partition}:
                    self._producer.produce(self._topic, _VALUE, partition=other)
        except BufferError:
            return  # It holds more records than it may: the cluster has taken none for long.


def main() -> None:
    probe = Probe(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    threading.Thread(target=probe.run, daemon=True).start()
    for line in sys.stdin:
        command, *arguments = line.split()
        match command:
            case "partition":
                answer = probe.switch_to(int(arguments[0]))
            case "lately":
                answer = probe.acknowledged_lately()
            case _:
                answer = probe.first_acknowledged(int(arguments[0]))
        print(answer, flush=True)


if __name__ == "__main__":
    main()
