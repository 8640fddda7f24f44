"""A fuzz of the door: strangers come by every listener of a secured node, and by its peer port, while users go on."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorate.broker.peer_credentials import SECRET_FILE_NAME, make_secret_file, read_secret_file
from tests.chaos.load import PARTITION_COUNT
from tests.eventually import eventually
from tests.fuzz import world as w
from tests.fuzz.attack import Tally
from tests.fuzz.door_visits import FORBIDDEN_TOPIC, BrokenIn, Door, Visitor
from tests.fuzz.health import Health, LogWatch, signature
from tests.fuzz.pulse import Pulse
from tests.fuzz.run import (
    MOST_MEMORY_BYTES,
    SETTLED_WITHIN_S,
    WARM_UP_PART,
    FuzzFailed,
    Plan,
    Report,
    is_settled,
)
from tests.fuzz.witness import Witness
from tests.peers.child_process import free_port
from tests.peers.secured_node import PASSWORD, USERNAME, SecuredNode, access_token, add_scram_user

#: About as many as there are in a visit, by which visits are numbered.
FRAMES_PER_VISIT: Final = 3
_CONNECTIONS: Final = 48
_FRAMES_PER_LOOK: Final = 4_000
_WITNESS: Final = "witness"
_LIFETIME_S: Final = 24 * 3600
#: Of what a node logs: each kind of line is held to a few in a second, and there are not many kinds.
_MOST_LINES_AT_ONCE: Final = 1_000
_MOST_LINES_PER_SECOND: Final = 40
#: Who has logged in and asks for what it may not have is in the audit log each time.
_KNOWN: Final = "quorate.audit Principal = User:alice"
_HELD = re.compile(r"event loop held ms=\d+ cpu_ms=(\d+)")
_PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class DoorNode(SecuredNode):
    """With an authorizer, and a port for peers that it shows its secret to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        secret_file = folder / SECRET_FILE_NAME
        make_secret_file(secret_file)
        self.secrets = read_secret_file(str(secret_file))
        self.peer_address = ("127.0.0.1", free_port())
        peer = f"127.0.0.1:{self.peer_address[1]}"
        users = "".join(f' user_{name}="{_quoted(PASSWORD)}"' for name in (USERNAME, _WITNESS))
        super().__init__(
            folder,
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{_WITNESS}",
                "connection.failed.authentication.delay.ms": 20,
                "num.partitions": PARTITION_COUNT,
                **{
                    f"listener.name.{name}.plain.sasl.jaas.config": f"{_PLAIN_LOGIN} required{users};"
                    for name in ("sasl_plaintext", "sasl_ssl", "renewed")
                },
            },
            {
                "cluster_id": "tests",
                "cluster_secret_file": str(secret_file),
                "peer_listen": peer,
                "voters": {"7": peer},
            },
        )

    def login(self, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Of the witness, as librdkafka wants it."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": _WITNESS,
            "sasl.password": PASSWORD,
        }

    def furnish(self) -> None:
        """The topic that is written meanwhile, and the users."""
        admin = AdminClient({"bootstrap.servers": self.address("SASL_SSL"), **self.login("PLAIN")})
        for user in (USERNAME, _WITNESS):
            add_scram_user(admin, user)
        topic = NewTopic(w.WITNESS_TOPIC, PARTITION_COUNT, 1)
        admin.create_topics([topic])[w.WITNESS_TOPIC].result(30)

    def topics(self) -> set[str]:
        admin = AdminClient({"bootstrap.servers": self.address("SASL_SSL"), **self.login()})

        def ask() -> set[str] | None:
            try:
                return set(admin.list_topics(timeout=10).topics)
            except KafkaException:
                return None

        return eventually(ask, "the topics")

    def door(self) -> Door:
        return Door(
            addresses={name: ("127.0.0.1", port) for name, port in self.ports.items()},
            peer_address=self.peer_address,
            authority_file=str(self.authority.certificate),
            folder=self.folder,
            secrets=self.secrets,
            node_id=self.node_id,
            access_token=access_token(lifetime_s=_LIFETIME_S),
        )


def run_door_fuzz(folder: Path, plan: Plan, *, progress: Callable[[str], None] = lambda _: None) -> Report:
    with DoorNode(folder) as node:
        node.restart()
        node.furnish()
        fuzz = _DoorFuzz(node, plan, progress)
        fuzz.attack()
        fuzz.check_afterwards()
        return fuzz.report()


class _DoorFuzz:
    def __init__(self, node: DoorNode, plan: Plan, progress: Callable[[str], None]) -> None:
        self._node = node
        self._plan = plan
        self._progress = progress
        self._watch = LogWatch(node)
        self._lines_before = _lines_of_strangers(node.log_text())
        self._witness = Witness(node.address("SASL_SSL"), **node.login())
        self._tally = Tally()
        self._base = Health.of(node)
        self._is_warm = False
        self._peak_bytes = 0
        self._seconds = 0.0
        self._troubles: dict[str, int] = {}
        self._door = node.door()

    def attack(self) -> None:
        self._witness.start()
        began_s = time.monotonic()
        plan = self._plan
        warm_at = plan.first + int(plan.frames * WARM_UP_PART)
        at = plan.first
        with asyncio.Runner() as runner:
            while at < plan.end:
                end = min(plan.end, at + _FRAMES_PER_LOOK)
                numbers = range(at // FRAMES_PER_VISIT, (end - 1) // FRAMES_PER_VISIT + 1)
                try:
                    self._tally.add(runner.run(self._visit_all(numbers)))
                except BrokenIn as error:
                    raise FuzzFailed(str(error), at, end - at) from None
                self._look(at, end - at)
                at = end
                if not self._is_warm and at >= warm_at:
                    self._is_warm = True
                    self._base = Health.of(self._node)
                self._say(at - plan.first, time.monotonic() - began_s)
        self._seconds = time.monotonic() - began_s
        self._witness.end()

    def check_afterwards(self) -> None:
        node, plan = self._node, self._plan
        self._look(plan.first, plan.frames)
        what = f"the node to come back to {self._base}"
        eventually(lambda: is_settled(Health.of(node), self._base), what, SETTLED_WITHIN_S)
        self._check_lines()
        self._require(FORBIDDEN_TOPIC not in node.topics(), "somebody who was not let in has made a topic")
        self._require(node.stop() == 0, "the node did not stop in order")
        node.restart()
        self._witness.check_everything(node.address("SASL_SSL"))
        self._look(plan.first, plan.frames)
        self._require(not self._troubles, f"what was logged, and how often: {self._troubles}")

    def report(self) -> Report:
        holds_ms = [int(found) for found in _HELD.findall(self._node.log_text())]
        return Report(
            frames=self._tally.frames,
            answers=self._tally.answers,
            connections=self._tally.connections,
            ended=self._tally.ended,
            seconds=round(self._seconds, 1),
            grown_bytes=self._grown_bytes,
            acknowledged=self._witness.acknowledged,
            warnings={**self._watch.kinds, "longest hold, ms of CPU": max(holds_ms, default=0)},
        )

    @property
    def _grown_bytes(self) -> int:
        return self._peak_bytes - self._base.resident_bytes

    async def _visit_all(self, numbers: range) -> Tally:
        pulse = Pulse(self._door.addresses["PLAINTEXT"])
        waiting = deque(numbers)
        tally = Tally()

        async def work() -> None:
            while waiting:
                visitor = Visitor(self._door, self._plan.seed, waiting.popleft(), pulse)
                has_ended = await visitor.visit()
                tally.add(Tally(frames=visitor.frames, answers=visitor.answers, connections=1, ended=int(has_ended)))

        try:
            await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))
        finally:
            await pulse.end()
        return tally

    def _look(self, first: int, frames: int) -> None:
        for trouble in self._watch.troubles():
            if not self._plan.keeps_going:
                raise FuzzFailed(f"the node logged:\n{trouble}", first, frames)
            kind = signature(trouble)
            if kind not in self._troubles:
                self._progress(f"frames from {first} on: the node logged:\n{trouble}")
            self._troubles[kind] = self._troubles.get(kind, 0) + 1
        running = self._node.process.running
        self._require(running, f"the node has ended:\n{self._node.log_text()[-3000:]}", first, frames)
        self._peak_bytes = max(self._peak_bytes, self._node.resident_bytes())
        if self._is_warm:
            grown = f"the node has grown by {self._grown_bytes >> 20} MiB"
            self._require(self._grown_bytes < MOST_MEMORY_BYTES, grown, first, frames)
        self._require(self._witness.broken is None, f"the witness says: {self._witness.broken}", first, frames)

    def _check_lines(self) -> None:
        """A stranger does not fill the log, and nothing that one says begins a line or breaks one."""
        lines = _lines_of_strangers(self._node.log_text()) - self._lines_before
        most = _MOST_LINES_AT_ONCE + int(self._seconds * _MOST_LINES_PER_SECOND)
        self._require(lines <= most, f"the node has written {lines} lines in {self._seconds:.0f} s")
        self._require(not self._watch.broken_lines, f"lines without a beginning: {self._watch.broken_lines[:3]}")

    def _require(self, holds: bool, reason: str, first: int | None = None, frames: int | None = None) -> None:
        if not holds:
            raise FuzzFailed(reason, self._plan.first if first is None else first, frames or self._plan.frames)

    def _say(self, done: int, seconds: float) -> None:
        tally, memory = self._tally, self._node.resident_bytes() >> 20
        self._progress(
            f"{done} of the plan, {tally.frames / seconds:.0f} frames/s, {tally.connections} visits, "
            f"{tally.answers} answers, {memory} MiB"
        )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _lines_of_strangers(log: str) -> int:
    return log.count("\n") - log.count(_KNOWN)
