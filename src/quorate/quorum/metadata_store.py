"""The metadata store of a real node: what the quorum has agreed on, and commands that go to its leader.

Any node takes any command. It is asked of the quorum leader, wherever that is, and answered when the image of this
node shows the result; that a node cannot decide by itself is nothing that its clients see.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, TopicId, TopicName
from quorate.kernel.tasks import awaited_task
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import decode_outcomes, encode_commands
from quorate.metadata.core.controller import cost_of
from quorate.metadata.core.decisions import Answer, CarriedOut, Outcomes
from quorate.metadata.core.image import Delta, MetadataImage, difference
from quorate.metadata.core.records import AnyRecord, TopicDeleted
from quorate.metadata.core.snapshot import decode_image, encode_image
from quorate.metadata.store import MetadataStore
from quorate.quorum.core.entries import Entry, EntryKind, Snapshot
from quorate.quorum.core.leader_requests import LeaderAnswer, LeaderRequest, Submit, Submitted
from quorate.quorum.entry_payload import decode_records
from quorate.quorum.leader_calls import NoQuorum

_SUBMIT_TIMEOUT_MS = 15_000
#: Agreed on in one entry, which every node applies in one turn of its loop. More are submitted part after part.
COMMANDS_AT_ONCE = 500
#: The same for what they concern, but for a topic that has more: each node checks an entry in one turn of its loop, and
#: each takes 150 bytes to each node.
PARTITIONS_AT_ONCE = 5_000
#: Read in one turn of the loop at most, some hundreds of records.
_READ_AT_ONCE_BYTES = 32 * 1024
#: Partitions that go with their topics in one turn of the loop at most.
_DELETED_AT_ONCE = 300
#: By then a quorum that can has elected a leader, and a leader without a majority has resigned.
_CONFIRM_TIMEOUT_MS = 2_000


#: A creation is answered after that, whatever the disk does: leaders elsewhere may be ready or not.
_OPEN_TIMEOUT_S = 1.0

#: What is applied next to an image, and what is new in it.
_After = tuple[MetadataImage, Delta | None]

#: Returns when this node's replicas of the topics are open, or after the seconds.
WaitUntilOpen = Callable[[Sequence[TopicName], float], Awaitable[None]]


class AskLeader(Protocol):
    async def ask(self, request: LeaderRequest, timeout_ms: float) -> tuple[LeaderAnswer, bool]: ...


class QuorumMetadataStore(MetadataStore):
    def __init__(
        self,
        leader: AskLeader,
        loop: asyncio.AbstractEventLoop,
        new_uuid: Callable[[], UUID],
        executor: Executor | None = None,
    ) -> None:
        super().__init__(MetadataImage())
        self._leader = leader
        self._executor = executor
        self.read_at_once_bytes = _READ_AT_ONCE_BYTES
        self._loop = loop
        self._new_uuid = new_uuid
        #: Who waits for the image to reach a version.
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._opened: WaitUntilOpen | None = None

    async def _carry_out(self, commands: Sequence[c.Command], *, validate_only: bool) -> Outcomes:
        outcomes: Outcomes = []
        for some in parts_of(self.image, commands):
            try:
                outcomes += await self._submit(some, validate_only=validate_only)
            except (NoQuorum, TimeoutError):
                outcomes += [_timed_out() for _ in commands[len(outcomes) :]]
                break
        else:
            await self._wait_after_creation(commands)
        return outcomes

    async def _submit(self, commands: Sequence[c.Command], *, validate_only: bool) -> Outcomes:
        repeatable = [self._repeatable(command) for command in commands]
        request = Submit(commands=encode_commands(repeatable), validate_only=validate_only)
        is_joining = any(isinstance(command, c.RegisterBroker) for command in commands)
        outcomes, was_repeated = await self._ask(request, repeatable, _SUBMIT_TIMEOUT_MS, is_joining=is_joining)
        if was_repeated:
            pairs = zip(repeatable, outcomes, strict=True)
            return [_after_repeating(self.image, command, outcome) for command, outcome in pairs]
        return outcomes

    def wait_after_creation(self, opened: WaitUntilOpen) -> None:
        """Have a creation answered when this node has opened its replicas, so that clients need not try again here."""
        self._opened = opened

    async def _wait_after_creation(self, commands: Sequence[c.Command]) -> None:
        created = [TopicName(one.name) for one in commands if isinstance(one, c.CreateTopic | c.CreatePartitions)]
        if created and self._opened is not None:
            await self._opened(created, _OPEN_TIMEOUT_S)

    async def is_current(self) -> bool:
        """An answer to no command at all: a majority has confirmed who gave it, and the image has come as far."""
        try:
            await self._ask(Submit(commands=encode_commands([]), validate_only=False), [], _CONFIRM_TIMEOUT_MS)
        except (NoQuorum, TimeoutError):
            return False
        return True

    async def _ask(
        self, request: Submit, commands: Sequence[c.Command], timeout_ms: float, *, is_joining: bool = False
    ) -> tuple[Outcomes, bool]:
        """The outcomes, once the image shows them, and whether an earlier attempt may have had an effect already.

        A broker that is refused follows no log: its image would never show anything.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        answer, was_repeated = await self._leader.ask(request, timeout_ms)
        assert isinstance(answer, Submitted)
        outcomes, version = decode_outcomes(answer.outcomes, commands)
        if not (is_joining and all(isinstance(outcome, KafkaError) for outcome in outcomes)):
            await self.reached(version, deadline - self._loop.time())
        return outcomes, was_repeated

    async def reached(self, version: Offset, timeout_s: float) -> None:
        """Return when the image is at the version or later; ``TimeoutError`` if that takes too long."""
        if self.image.version >= version:
            return
        future = self._loop.create_future()
        waiter = (version, future)
        self._waiting.append(waiter)
        try:
            await asyncio.wait_for(future, timeout_s)
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def apply(self, snapshot: Snapshot | None, entries: Sequence[Entry]) -> "asyncio.Future[None] | None":
        """In turns of the loop that stay short: what a snapshot or a long entry makes of the image, a worker makes."""
        if snapshot is not None:
            return awaited_task(self._loop, self._apply_in_turns(snapshot, entries))
        for number, entry in enumerate(entries):
            after = self._after_short(entry)
            if after is None:
                return awaited_task(self._loop, self._apply_in_turns(None, entries[number:]))
            self._show(*after)
        return None

    async def _apply_in_turns(self, snapshot: Snapshot | None, entries: Sequence[Entry]) -> None:
        """Nothing else changes the image meanwhile: what comes next is applied after this."""
        if snapshot is not None:
            self._show(*await self._by_worker(partial(_installed, self.image, snapshot)))
        for entry in entries:
            after = self._after_short(entry) or await self._by_worker(partial(_after, self.image, entry))
            self._show(*after)
            await asyncio.sleep(0)

    def _after_short(self, entry: Entry) -> _After | None:
        """None where the entry is long, or deletes much."""
        if len(entry.payload) > self.read_at_once_bytes:
            return None
        records = _records(entry)
        return (
            None if _deleted_partitions(self.image, records) > _DELETED_AT_ONCE else _after(self.image, entry, records)
        )

    def install(self, snapshot: Snapshot) -> None:
        """Take what a snapshot holds, for a node that serves nobody yet."""
        self._show(*_installed(self.image, snapshot))

    def _by_worker(self, work: Callable[[], _After]) -> "asyncio.Future[_After]":
        return self._loop.run_in_executor(self._executor, work)

    def _show(self, image: MetadataImage, delta: Delta | None) -> None:
        super()._show(image, delta)
        self._wake()

    def snapshot(self) -> Callable[[], bytes]:
        return partial(encode_image, self.image)

    def _wake(self) -> None:
        version = self.image.version
        due = [future for wanted, future in self._waiting if wanted <= version]
        if due:
            self._waiting = [(wanted, future) for wanted, future in self._waiting if wanted > version]
            for future in due:
                if not future.done():
                    future.set_result(None)

    def _repeatable(self, command: c.Command) -> c.Command:
        """The node chooses the topic's id, so that a creation asked for twice is recognised as the same."""
        if isinstance(command, c.CreateTopic) and command.topic_id is None:
            return msgspec.structs.replace(command, topic_id=TopicId(self._new_uuid()))
        return command


def parts_of(image: MetadataImage, commands: Sequence[c.Command]) -> Iterator[Sequence[c.Command]]:
    """The commands in their order, in as few parts as may be agreed on one after the other."""
    first, cost = 0, 0
    for number, command in enumerate(commands):
        own = cost_of(image, [command])
        if number > first and (number - first == COMMANDS_AT_ONCE or cost + own > PARTITIONS_AT_ONCE):
            yield commands[first:number]
            first, cost = number, 0
        cost += own
    if commands:
        yield commands[first:]


def _installed(image: MetadataImage, snapshot: Snapshot) -> _After:
    after = decode_image(snapshot.payload)
    assert after.version == snapshot.meta.end_offset
    return after, difference(image, after)


def _after(image: MetadataImage, entry: Entry, records: Sequence[AnyRecord] | None = None) -> _After:
    """``records`` are those of the entry, where it has been read already."""
    version = Offset(entry.offset + 1)
    if entry.kind is not EntryKind.COMMAND:
        return msgspec.structs.replace(image, version=version), None
    return image.replay(_records(entry) if records is None else records, version)


def _records(entry: Entry) -> list[AnyRecord]:
    return decode_records(entry.payload) if entry.kind is EntryKind.COMMAND else []


def _deleted_partitions(image: MetadataImage, records: Sequence[AnyRecord]) -> int:
    topics = [image.topic_by_id(record.topic_id) for record in records if isinstance(record, TopicDeleted)]
    return sum(len(topic.partitions) for topic in topics if topic is not None)


def _after_repeating(image: MetadataImage, command: c.Command, outcome: Answer | KafkaError) -> Answer | KafkaError:
    """What an earlier attempt did is what the asker wanted, not a reason to refuse a later one."""
    match command:
        case c.DeleteTopic(topic_id=topic_id):
            done = topic_id not in image.topic_names
        case c.CreatePartitions(name=name, total_count=total_count):
            topic = image.topics.get(name)
            done = topic is not None and len(topic.partitions) == total_count
        case _:
            done = False
    return CarriedOut() if done and isinstance(outcome, KafkaError) else outcome


def _timed_out() -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request was not agreed on in time.")
