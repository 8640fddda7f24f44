"""A coordinator that crashes, partitions, a network that loses and repeats markers, and producers that try again.

Everything happens in steps that a random source chooses, so that a seed replays any run. Whatever has happened, a
transaction must end the same way on all its partitions, and as its producer was told.
"""

from dataclasses import dataclass, field
from random import Random

from quorate.coordination.core.effects import Token
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    Command,
    EndTransaction,
    EndTransactionResult,
    InitProducer,
    InitProducerResult,
    ProducerIdNeeded,
    Result,
)
from quorate.coordination.transactions.core.effects import CompletionTimer, Markers, MarkersWritten, TimeoutTimer
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition
from quorate.records.control import EPOCH_PER_TRANSACTION
from tests.unit.coordination.transactions.core.conversation import ID, Conversation

PARTITIONS = [TopicPartition(TopicName("orders"), PartitionIndex(index)) for index in range(3)]
RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Violation(AssertionError):
    """Something that must never happen."""


@dataclass
class Attempt:
    """One transaction as its producer knows it."""

    number: int
    written: set[TopicPartition] = field(default_factory=set)
    asked_to_commit: bool = False
    answered: bool | None = None


@dataclass
class ModelPartition:
    """The rules of a partition's leader, in short."""

    epochs: dict[ProducerId, int] = field(default_factory=dict)
    coordinator_epochs: dict[ProducerId, int] = field(default_factory=dict)
    open: dict[ProducerId, list[Attempt]] = field(default_factory=dict)
    outcomes: dict[int, bool] = field(default_factory=dict)

    def append(self, producer_id: ProducerId, epoch: int, attempt: Attempt) -> bool:
        if epoch < self.epochs.get(producer_id, -1):
            return False
        if any(other is not attempt for other in self.open.get(producer_id, [])):
            raise Violation(f"transaction {attempt.number} begins while another is open")
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, []).append(attempt)
        return True

    def write_marker(self, markers: Markers, coordinator_epoch: int) -> ErrorCode:
        producer_id = markers.producer_id
        known = self.epochs.get(producer_id, -1)
        is_stale = markers.producer_epoch < known
        if markers.transaction_version >= EPOCH_PER_TRANSACTION and self.open.get(producer_id):
            is_stale = markers.producer_epoch <= known
        if is_stale:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        self.epochs[producer_id] = markers.producer_epoch
        self.coordinator_epochs[producer_id] = coordinator_epoch
        for attempt in self.open.pop(producer_id, []):
            self.outcomes[attempt.number] = markers.commits
        return ErrorCode.NONE


@dataclass(eq=False)
class Delivery:
    """A marker on its way to one partition."""

    markers: Markers
    partition: TopicPartition
    coordinator_epoch: int


class World:
    def __init__(self, seed: int, *, version: int) -> None:
        self.random = Random(seed)
        self.version = version
        self.partitions = {name: ModelPartition() for name in PARTITIONS}
        self.attempts: list[Attempt] = []
        self.deliveries: list[Delivery] = []
        self.late_requests: list[Command] = []
        self.coordinator_epoch = 0
        self.next_producer_id = 0
        #: The newest that any producer has been initialised with.
        self.newest: tuple[int, int] = (-1, -1)
        self.is_calm = False
        self.coordinator = Conversation()
        self.coordinator.holds_appends = True
        #: Of the coordinator that is alive: which partitions have not answered.
        self.unanswered: dict[tuple[int, int], tuple[Markers, set[TopicPartition]]] = {}

    def chance(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def ask(self, command: Command) -> Token:
        return self.coordinator.send(command)

    def reply(self, coordinator: Conversation, token: Token) -> Result | None:
        """None: not yet, or never."""
        return coordinator.replies.get(token) if coordinator is self.coordinator else None

    def new_producer_id(self) -> ProducerId:
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id)

    def new_attempt(self) -> Attempt:
        attempt = Attempt(number=len(self.attempts))
        self.attempts.append(attempt)
        return attempt

    # What may happen next.

    def step(self) -> None:
        self._take_markers()
        self.random.choices(
            [self._settle_append, self._deliver, self._crash, self._time_passes, self._late_request],
            weights=[10, 10, 0 if self.is_calm else 1, 1, 0 if self.is_calm else 1],
        )[0]()

    def _settle_append(self) -> None:
        if not self.coordinator.appends:
            return
        if self.chance(0.1):
            self.coordinator.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            append = self.coordinator.appends.pop(0)
            self.coordinator._commit(append)

    def _take_markers(self) -> None:
        for markers in self.coordinator.markers:
            self.unanswered[markers.producer_id, markers.producer_epoch] = markers, set(markers.partitions)
        self.coordinator.markers.clear()

    def _deliver(self) -> None:
        if not self.deliveries or self.chance(0.2):
            self._send_again()
        if not self.deliveries:
            return
        delivery = self.random.choice(self.deliveries)
        is_repeated = self.version >= EPOCH_PER_TRANSACTION and self.chance(0.2)
        if not is_repeated:
            self.deliveries.remove(delivery)
        if self.chance(0.1):
            return
        self.partitions[delivery.partition].write_marker(delivery.markers, delivery.coordinator_epoch)
        if delivery.coordinator_epoch == self.coordinator_epoch and not self.chance(0.1):
            self._answered(delivery)

    def _send_again(self) -> None:
        for markers, left in self.unanswered.values():
            for partition in sorted(left):
                self.deliveries.append(Delivery(markers, partition, self.coordinator_epoch))

    def _answered(self, delivery: Delivery) -> None:
        key = delivery.markers.producer_id, delivery.markers.producer_epoch
        if key not in self.unanswered:
            return
        markers, left = self.unanswered[key]
        left.discard(delivery.partition)
        if not left:
            del self.unanswered[key]
            self.deliveries = self.deliveries if self._repeats else [d for d in self.deliveries if d.markers != markers]
            self.coordinator.report(MarkersWritten(markers=markers))

    @property
    def _repeats(self) -> bool:
        """With the older protocol a marker that comes late ends the next transaction: Kafka has no answer to that."""
        return self.version >= EPOCH_PER_TRANSACTION

    def _crash(self) -> None:
        """What was on its way to the log may be in it, all that came before it too, and nobody was told."""
        survived = self.random.randint(0, len(self.coordinator.appends))
        log = [*self.coordinator.log]
        for append in self.coordinator.appends[:survived]:
            log.extend(append.records)
        now_ms = self.coordinator.now_ms
        self.coordinator_epoch += 1
        self.unanswered.clear()
        self.coordinator = Conversation(self.coordinator.config, log)
        self.coordinator.now_ms = now_ms
        self.coordinator.commit_appends()
        self.coordinator.holds_appends = True

    def _time_passes(self) -> None:
        self.coordinator.now_ms += self.random.randint(0, 2_000)
        for key, at_ms in list(self.coordinator.timers.items()):
            is_due = at_ms <= self.coordinator.now_ms or isinstance(key, CompletionTimer)
            if is_due and isinstance(key, CompletionTimer | TimeoutTimer):
                self.coordinator.fire(key)

    def _late_request(self) -> None:
        if self.late_requests:
            self.ask(self.random.choice(self.late_requests))

    # The end.

    def calm_down(self) -> None:
        """No more faults and nobody asks: everything has to come to its end."""
        self.is_calm = True
        for _ in range(3):
            for _ in range(200):
                self.step()
            self.coordinator.now_ms += 10**9
            self._time_passes()
        self._check_all_have_ended()
        for attempt in self.attempts:
            self._check_outcome(attempt)

    def _check_all_have_ended(self) -> None:
        for name, partition in self.partitions.items():
            if any(partition.open.values()):
                raise Violation(f"a transaction hangs at {name}")
        if self.coordinator.log and self.coordinator.described().is_under_way:
            raise Violation(f"the coordinator is stuck: {self.coordinator.described()}")

    def _check_outcome(self, attempt: Attempt) -> None:
        outcomes = {self.partitions[name].outcomes[attempt.number] for name in attempt.written}
        if len(outcomes) > 1:
            raise Violation(f"transaction {attempt.number} is committed in part")
        if True in outcomes and not attempt.asked_to_commit:
            raise Violation(f"transaction {attempt.number} is committed, which nobody asked for")
        if outcomes and attempt.answered is not None and outcomes != {attempt.answered}:
            raise Violation(f"transaction {attempt.number} did not end as its producer was told")


class ModelProducer:
    """One instance of an application: initialises, writes transactions, and is fenced in the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer: tuple[ProducerId, ProducerEpoch] | None = None
        self.attempt: Attempt | None = None
        self.is_fenced = False
        self._command: Command | None = None
        self._asked: tuple[Conversation, Token] | None = None

    def step(self) -> None:
        if self.is_fenced:
            return
        if self._command is None:
            self._command = self._next_command()
        if self._asked is None:
            self._asked = self.world.coordinator, self.world.ask(self._command)
            return
        coordinator, token = self._asked
        result = self.world.reply(coordinator, token)
        if result is None and coordinator is self.world.coordinator and not self.world.chance(0.02):
            return
        self._asked = None
        if result is not None and not self.world.chance(0.15):  # Otherwise the answer is lost: ask again.
            self._answered(self._command, result)

    def _next_command(self) -> Command:
        random, world = self.world.random, self.world
        if self.producer is None:
            return InitProducer(transactional_id=ID, timeout_ms=20_000)
        if self.attempt is None:
            self.attempt = world.new_attempt()
        producer_id, epoch = self.producer
        if self.attempt.written and random.random() < 0.5:
            commits = random.random() < 0.7
            self.attempt.asked_to_commit = commits
            return EndTransaction(
                transactional_id=ID,
                producer_id=producer_id,
                producer_epoch=epoch,
                commits=commits,
                client_version=world.version,
            )
        return AddPartitions(
            transactional_id=ID,
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=frozenset({random.choice(PARTITIONS)}),
            client_version=world.version,
        )

    def _answered(self, command: Command, result: Result) -> None:
        if isinstance(result, ProducerIdNeeded):
            assert isinstance(command, InitProducer)
            self._command = InitProducer(
                transactional_id=ID, timeout_ms=command.timeout_ms, new_producer_id=self.world.new_producer_id()
            )
            return
        if isinstance(result, InitProducerResult | AddPartitionsResult | EndTransactionResult):
            if result.error in RETRIED:
                return
            if result.error is not ErrorCode.NONE:
                self.is_fenced = True
                return
        self._command = None
        match command, result:
            case InitProducer(), InitProducerResult():
                self.producer = result.producer_id, result.producer_epoch
                self.world.newest = max(self.world.newest, self.producer)
            case AddPartitions(partitions=partitions), _:
                self._append(*partitions)
            case EndTransaction(commits=commits), EndTransactionResult():
                assert self.attempt is not None
                self.attempt.answered = commits
                self.attempt = None
                if self.world.version >= EPOCH_PER_TRANSACTION:
                    self.world.late_requests.append(command)
                    self.producer = result.producer_id, result.producer_epoch

    def _append(self, partition: TopicPartition) -> None:
        """With the older protocol only while the transaction goes on, which its leader asks for at that moment."""
        assert self.attempt is not None
        assert self.producer is not None
        needs_verification = self.world.version < EPOCH_PER_TRANSACTION
        if needs_verification and not self.world.coordinator.is_verified_at_once(self.producer, partition):
            return
        if self.world.partitions[partition].append(*self.producer, self.attempt):
            self.attempt.written.add(partition)
            if self.producer < self.world.newest:
                raise Violation("a producer writes whose successor is there")


def run(seed: int, *, version: int, steps: int) -> World:
    world = World(seed, version=version)
    producers = [ModelProducer(world)]
    for _ in range(steps):
        if world.random.random() < 0.004 or all(producer.is_fenced for producer in producers):
            producers.append(ModelProducer(world))
        if world.random.random() < 0.5:
            world.random.choice(producers).step()
        else:
            world.step()
    world.calm_down()
    return world
