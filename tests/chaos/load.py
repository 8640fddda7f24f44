"""Load from librdkafka while things break, and everything that its clients are told."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from quorate.kernel.ids import Offset
from tests.chaos.reading_order import ReadingOrder
from tests.eventually import eventually
from tests.simulation.replication.history import History, HistoryBroken

TOPIC = "orders"
PARTITION_COUNT = 4
_IN_FLIGHT = 200
#: Records handed over between two looks at the acknowledgements.
_AT_ONCE = 4


class SharedHistory:
    """The history, told by several threads; the first thing that breaks it is kept for the test."""

    def __init__(self) -> None:
        self.history = History(once=(b"once", b"1."))  # The Java client's begin with a number.
        self.broken: Exception | None = None
        #: Acknowledged, without a word of the offset.
        self.placeless: set[bytes] = set()
        #: Between two acknowledgements, over all writers.
        self.longest_silence_s = 0.0
        self._acknowledged_at = time.monotonic()
        self._lock = threading.Lock()

    def acknowledged(self, partition: int, offset: int, value: bytes) -> None:
        self.tell(lambda history: history.acknowledged(partition, offset, [value]))
        now = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now - self._acknowledged_at)
        self._acknowledged_at = now

    def tell(self, note: Callable[[History], None]) -> None:
        with self._lock:
            try:
                note(self.history)
            except HistoryBroken as error:
                self.broken = self.broken or error

    def report(self, error: Exception) -> None:
        with self._lock:
            self.broken = self.broken or error


class Worker(threading.Thread):
    """Does one thing over and over until it is told to end."""

    def __init__(self, shared: SharedHistory, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.shared = shared
        self.ends = threading.Event()

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                self.step()
            self.finish()
        except Exception as error:
            self.shared.report(error)

    def step(self) -> None:
        raise AssertionError(f"{self.name} has nothing to do")

    def finish(self) -> None:
        """Before the thread ends."""

    def end(self) -> None:
        self.ends.set()
        self.join(120)
        if self.is_alive():
            self.shared.report(HistoryBroken(f"{self.name} hangs"))


class Writer(Worker):
    def __init__(
        self, shared: SharedHistory, bootstrap: str, name: str, *, is_idempotent: bool, **settings: Any
    ) -> None:
        super().__init__(shared, f"{'once' if is_idempotent else 'often'}-{name}")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": is_idempotent,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "request.timeout.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 2_000,
                "log_level": 0,
                **settings,
            }
        )
        self._sent = 0
        self._under_way = 0

    def step(self) -> None:
        for _ in range(min(_AT_ONCE, _IN_FLIGHT - self._under_way)):
            partition = self._sent % PARTITION_COUNT
            value = f"{self.name}-{self._sent}".encode()
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
            self._sent += 1
            self._under_way += 1
        self._producer.poll(0.002)

    def finish(self) -> None:
        left = self._producer.flush(100)
        if left:
            raise HistoryBroken(f"{left} writes of {self.name} hang")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._under_way -= 1
        if error is not None:
            self.shared.report(HistoryBroken(f"{self.name} was told {error}"))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert isinstance(value, bytes)
        if offset is None:
            # It knows that the record is there by the acknowledgement of a later one.
            self.shared.placeless.add(value)
        else:
            self.shared.acknowledged(partition, offset, value)


class Tail(Worker):
    """Reads all partitions from the beginning and goes on as they grow."""

    def __init__(self, shared: SharedHistory, bootstrap: str, name: str, **settings: Any) -> None:
        super().__init__(shared, name)
        self._consumer = _consumer(bootstrap, name, **settings)
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITION_COUNT)])
        self._orders = [ReadingOrder() for _ in range(PARTITION_COUNT)]

    @property
    def went_back(self) -> int:
        return sum(order.went_back for order in self._orders)

    def step(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                self._take(message)

    def finish(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        partition, offset, value, epoch = message.partition(), message.offset(), message.value(), message.leader_epoch()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        assert epoch is not None
        try:
            self._orders[partition].read(offset, epoch)
        except HistoryBroken as error:
            raise HistoryBroken(f"{self.name}, partition {partition}: {error}") from None
        self.shared.tell(lambda history: history.read(partition, Offset(offset), value, self.name))


class GroupMember(Worker):
    """Reads as a group and commits as it goes: what was committed must not be forgotten."""

    def __init__(self, shared: SharedHistory, bootstrap: str) -> None:
        super().__init__(shared, "group")
        self._consumer = _consumer(bootstrap, self.name, **{"auto.offset.reset": "earliest"})
        self._consumer.subscribe([TOPIC])
        self.committed: dict[int, int] = {}

    def step(self) -> None:
        if not self._consumer.consume(500, 0.2):
            return
        try:
            committed = self._consumer.commit(asynchronous=False)
        except KafkaException:
            return  # Nothing is known; only a success is a promise.
        for place in committed or []:
            if place.error is None and place.offset >= 0:
                self.committed[place.partition] = place.offset

    def finish(self) -> None:
        places = eventually(self._ask_committed, "what the group has committed") if self.committed else []
        for place in places:
            if place.offset < self.committed[place.partition]:
                raise HistoryBroken(f"the group is at {place}, where {self.committed[place.partition]} was committed")
        self._consumer.close()

    def _ask_committed(self) -> list[TopicPartition] | None:
        places = [TopicPartition(TOPIC, partition) for partition in self.committed]
        try:
            found: list[TopicPartition] = self._consumer.committed(places, timeout=30)
        except KafkaException:
            return None  # Its coordinator is just being changed.
        return None if any(place.error is not None for place in found) else found


def read_everything(bootstrap: str, **settings: Any) -> dict[int, dict[Offset, bytes]]:
    """All that the topic has, read anew."""
    consumer = _consumer(bootstrap, "last-reader", **settings)
    found: dict[int, dict[Offset, bytes]] = {}
    for partition in range(PARTITION_COUNT):
        place = TopicPartition(TOPIC, partition, 0)
        end = _end_offset(consumer, place)
        consumer.assign([place])
        content = found.setdefault(partition, {})
        deadline = time.monotonic() + 30
        while len(content) < end:
            assert time.monotonic() < deadline, f"partition {partition} gave {len(content)} of {end} records"
            for message in consumer.consume(1_000, 0.2):
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and isinstance(value, bytes):
                    content[Offset(offset)] = value
    consumer.close()
    return found


def _end_offset(consumer: Consumer, place: TopicPartition) -> int:
    def ask() -> tuple[int, int] | None:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=30)
        except KafkaException:
            return None  # Its leader is just being changed.
        return found

    return eventually(ask, f"the end of {place}")[1]


def _consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
            "session.timeout.ms": 10_000,
            # Starting over from the bootstrap servers, librdkafka 2.16 can lock itself up for good when an
            # OffsetForLeaderEpoch is under way: close() then never returns.
            "metadata.recovery.strategy": "none",
            **settings,
        }
    )
