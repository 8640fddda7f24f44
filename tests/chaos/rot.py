"""Bits that flip on the disk of one node of three: ``python -m tests.chaos.rot --flips 500``.

The node is stopped, killed, killed while it is written to, or running.

Each is to be found, none to be served, and each to be repaired from the other nodes without an operator.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final, Protocol

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.eventually import eventually
from tests.peers.quorate_cluster import QuorateCluster
from tests.rot import QUORUM_KINDS, Flip, carry_out, files_of

TOPICS: Final = {
    "plain": {"segment.bytes": str(1 << 20)},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"},
}
#: Of partitions' logs, those of the groups' and transactions' coordinators too.
LOG_KINDS: Final = {
    "log": "*-[0-9]/*.log",
    "offset index": "*-[0-9]/*.index",
    "time index": "*-[0-9]/*.timeindex",
    "transaction index": "*-[0-9]/*.txnindex",
    "producer snapshot": "*-[0-9]/*.snapshot",
    "checksums": "*-[0-9]/*.checksum",
    "checkpoints": "*-[0-9]/*-checkpoint",
    "partition metadata": "*-[0-9]/partition.metadata",
}
KINDS: Final = LOG_KINDS | {kind: pattern for kind, pattern in QUORUM_KINDS.items() if kind != "reserve"}
CONFIGS: Final = {
    "log.scrub.bytes.per.second": str(1 << 30),
    "log.scrub.interval.ms": "1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
#: What the node does when its bits flip, or what was done to it: killed while it was ``written`` to, say.
HOWS: Final = ("stopped", "killed", "running", "written")
_VALUE_BYTES = 20_000
_A_BURST = 25
_HEALED_WITHIN_S = 180


class Nodes(Protocol):
    """What is done to the nodes of a cluster."""

    def data_dir(self, node_id: int) -> Path: ...

    def stop(self, node_id: int) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def restart(self, node_id: int) -> None: ...


class Flipped(msgspec.Struct, frozen=True):
    flip: Flip
    inode: int
    #: Of the file up to the flipped bit; behind it the file may grow.
    digest: bytes

    @classmethod
    def carried_out(cls, flip: Flip) -> "Flipped":
        path = Path(flip.path)
        carry_out(flip)
        return cls(flip, path.stat().st_ino, _digest(path, flip.position))

    @property
    def is_repaired(self) -> bool:
        """The file is gone, or another one, or says something else."""
        path = Path(self.flip.path)
        try:
            return path.stat().st_ino != self.inode or _digest(path, self.flip.position) != self.digest
        except FileNotFoundError:
            return True


class Campaign:
    def __init__(self, nodes: Nodes, bootstrap: str, node_ids: Sequence[int], seed: int) -> None:
        self._nodes = nodes
        self._bootstrap = bootstrap
        self._node_ids = node_ids
        self._random = Random(seed)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        #: By topic and offset; None for what a transaction has aborted.
        self._expected: dict[tuple[str, int], bytes | None] = {}
        self._newest: dict[bytes, bytes] = {}
        self.flips: Counter[str] = Counter()

    def create(self) -> None:
        topics = [NewTopic(name, 1, len(self._node_ids), config=config) for name, config in TOPICS.items()]
        for created in self._admin.create_topics(topics).values():
            created.result(30)

    def round(self, how: str, flips: int) -> None:
        """Flip bits of one node that is up or down, as ``HOWS`` has it, and see that all is well again."""
        self._write()
        self._wait_until_in_sync()
        node_id = self._random.choice(list(self._node_ids))
        if how == "stopped":
            self._nodes.stop(node_id)
        elif how == "killed":
            self._nodes.kill(node_id)
        elif how == "written":
            self._write(midway=lambda: self._nodes.kill(node_id))
        flipped = [Flipped.carried_out(flip) for flip in self._choose(node_id, flips)]
        if how != "running":
            self._nodes.restart(node_id)
            self._check_records()  # Before anything is known to be repaired: nothing of it is served.
        self._wait_until_in_sync()
        wrong = list(flipped)

        def all_repaired() -> bool:
            wrong[:] = [each for each in wrong if not each.is_repaired]
            return not wrong

        try:
            eventually(all_repaired, f"the flips on node {node_id} to be repaired", _HEALED_WITHIN_S)
        except AssertionError:
            left = "; ".join(str(each.flip) for each in wrong)
            raise AssertionError(f"{how} node {node_id}: not repaired: {left}") from None
        self._check_records()

    def _choose(self, node_id: int, count: int) -> Iterator[Flip]:
        """Bits of every kind of file, as likely of one as of another, and never of two that vouch for each other."""
        data_dir = self._nodes.data_dir(node_id)
        left = {kind: files_of(data_dir, pattern) for kind, pattern in KINDS.items()}
        for _ in range(count):
            kinds = [kind for kind, files in left.items() if files]
            if not kinds:
                return
            kind = self._random.choice(kinds)
            file = self._random.choice(left[kind])
            left = {kind: [other for other in files if _fate(other) != _fate(file)] for kind, files in left.items()}
            self.flips[kind] += 1
            yield Flip(str(file), self._random.randrange(file.stat().st_size), self._random.randrange(8))

    # What clients do.

    def _write(self, midway: Callable[[], None] = lambda: None) -> None:
        plain = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(_A_BURST):
            if number == _A_BURST // 2:
                plain.poll(0.01)  # Some are on their way, some acknowledged.
                midway()
            self._send(plain, "plain", b"%d" % number, self._random.randbytes(_VALUE_BYTES))
            self._send(plain, "compacted", b"%d" % (number % 3), self._random.randbytes(_VALUE_BYTES))
        assert plain.flush(60) == 0
        transactional = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "rot", "log_level": 0})
        transactional.init_transactions(60)
        for commits in (True, False):
            transactional.begin_transaction()
            self._send(transactional, "plain", b"t", self._random.randbytes(_VALUE_BYTES), counts=commits)
            transactional.flush(60)
            (transactional.commit_transaction if commits else transactional.abort_transaction)(60)
        self._commit_offsets()

    def _send(self, producer: Producer, topic: str, key: bytes, value: bytes, *, counts: bool = True) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            self._expected[topic, offset] = value if counts else None
            self._newest[topic.encode() + key] = value

        producer.produce(topic, value, key, on_delivery=delivered)

    def _commit_offsets(self) -> None:
        consumer = self._consumer()
        consumer.commit(offsets=[TopicPartition("plain", 0, len(self._expected))], asynchronous=False)
        consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "rot",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "check.crcs": False,  # As by default: what is wrong is handed on.
                "log_level": 0,
            }
        )

    def _check_records(self) -> None:
        """Read all, as it is served now."""
        found = {topic: self._read(topic) for topic in TOPICS}
        for (topic, offset), value in self._expected.items():
            served = found[topic].pop(offset, None)
            if topic == "plain":
                assert served == value, f"{topic} offset {offset} is served otherwise than it was written"
            else:
                assert served in (None, value), f"{topic} offset {offset} is served otherwise than it was written"
        assert not any(found.values()), f"served, and never written: {found}"

    def _read(self, topic: str) -> dict[int, bytes]:
        consumer = self._consumer()
        try:
            _, end = eventually(lambda: self._watermarks(consumer, topic), f"the end of {topic}", _HEALED_WITHIN_S)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found: dict[int, bytes] = {}
            deadline = time.monotonic() + _HEALED_WITHIN_S
            while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
                assert time.monotonic() < deadline, f"{topic} was not read to its end {end}"
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert message.timestamp()[0] != TIMESTAMP_NOT_AVAILABLE
                found[offset] = bytes(value or b"")
            return found
        finally:
            consumer.close()

    def _watermarks(self, consumer: Consumer, topic: str) -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        except Exception:  # The leader is on its way.
            return None

    def _wait_until_in_sync(self) -> None:
        def is_in_sync() -> bool:
            topics = self._admin.list_topics(timeout=20).topics
            return all(
                len(partition.isrs) == len(self._node_ids) and partition.leader >= 0
                for name in TOPICS
                for partition in topics[name].partitions.values()
            )

        eventually(is_in_sync, "all replicas to be in sync", _HEALED_WITHIN_S)


def _fate(file: Path) -> tuple[Path, str]:
    """What files have in common that tell of each other: those of one segment, and a file and its copy."""
    return file.parent, file.name.partition(".")[0]


def _digest(path: Path, position: int) -> bytes:
    with path.open("rb") as file:
        return sha256(file.read(position + 1)).digest()


class ProcessNodes:
    def __init__(self, cluster: QuorateCluster) -> None:
        self._cluster = cluster

    def data_dir(self, node_id: int) -> Path:
        return self._cluster.nodes[node_id].data_dir

    def stop(self, node_id: int) -> None:
        self._cluster.nodes[node_id].stop()

    def kill(self, node_id: int) -> None:
        self._cluster.kill([node_id])

    def restart(self, node_id: int) -> None:
        self._cluster.restart([node_id])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.rot", description=__doc__)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--a-round", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--how", choices=HOWS, default=None, help="in turn unless named")
    parser.add_argument("--rounds", type=int, default=0, help="at least so many, whatever was flipped")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quorate-rot-"))
    with QuorateCluster(folder, configs=CONFIGS) as cluster:
        campaign = Campaign(ProcessNodes(cluster), cluster.bootstrap, list(cluster.nodes), options.seed)
        campaign.create()
        rounds = 0
        while campaign.flips.total() < options.flips or rounds < options.rounds:
            how, began = options.how or HOWS[rounds % len(HOWS)], time.monotonic()
            try:
                campaign.round(how, options.a_round)
            except BaseException:
                print(f"seed {options.seed}, round {rounds}: what the nodes have is kept in {folder}", file=sys.stderr)
                raise
            rounds += 1
            took = time.monotonic() - began
            print(f"round {rounds} {how}: {campaign.flips.total()} flips repaired, {took:.0f} s", flush=True)
    print(f"{rounds} rounds, {campaign.flips.total()} flips, all repaired, none served: {dict(campaign.flips)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
