"""What users hold: one client for one cluster, its calls grouped by what they are about."""

from collections.abc import Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Self

from quorate.client.admin.brokers import Brokers, ClusterInfo
from quorate.client.admin.configs import Configs
from quorate.client.admin.groups import Groups
from quorate.client.admin.quorum import MetadataQuorum
from quorate.client.admin.topics import Producers, Reassignments, Topics
from quorate.client.cluster import Cluster
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import FetchedBatches, FetchRange, IsolationLevel, RangeFailed
from quorate.client.fetch.range_fetcher import DEFAULT_MAX_BYTES, RangeFetcher
from quorate.client.fetch.rounds import FetchResult, ReadPosition, fetch_once
from quorate.client.idempotent_producer import IdempotentProducer, ProducerIdentity
from quorate.client.offsets import Offsets
from quorate.client.retries import MonotonicClock
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName


class KafkaClient:
    """Connects when it is first used. Threads may share it; processes may not: each opens its own."""

    def __init__(
        self, config: ClientConfig, *, clock: MonotonicClock | None = None, random: Random | None = None
    ) -> None:
        self._cluster = Cluster(config, clock=clock, random=random)
        self.cluster = ClusterInfo(self._cluster)
        self.topics = Topics(self._cluster)
        self.configs = Configs(self._cluster)
        self.offsets = Offsets(self._cluster)
        self.groups = Groups(self._cluster)
        self.producers = Producers(self._cluster)
        self.brokers = Brokers(self._cluster)
        self.quorum = MetadataQuorum(self._cluster)
        self.reassignments = Reassignments(self._cluster)

    @property
    def leaders_followed(self) -> int:
        """How often a partition's leadership was found to have moved to another broker."""
        return self._cluster.leaders_followed

    def fetch_range(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        topic_id: TopicId | None = None,
        last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
        include_batch_across_end: bool = False,
    ) -> Iterator[FetchedBatches]:
        """The raw batches of a range, piece by piece. A piece's data is valid until the next one is asked for."""
        fetch_range = FetchRange(
            topic=TopicName(topic),
            partition=PartitionIndex(partition),
            start_offset=Offset(start_offset),
            end_offset=Offset(end_offset),
            topic_id=topic_id,
            last_fetched_epoch=last_fetched_epoch,
        )
        for outcome in self.fetch_ranges(
            [fetch_range], isolation=isolation, max_bytes=max_bytes, include_batch_across_end=include_batch_across_end
        ):
            if isinstance(outcome, RangeFailed):
                raise outcome.error
            yield outcome

    def fetch_ranges(
        self,
        ranges: Sequence[FetchRange],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_bytes: int = DEFAULT_MAX_BYTES,
        include_batch_across_end: bool = False,
    ) -> Iterator[FetchedBatches | RangeFailed]:
        """Many ranges from all their leaders at once. Each ends with one item that is last, or with one failure."""
        fetcher = RangeFetcher(
            self._cluster,
            ranges,
            isolation=isolation,
            max_bytes=max_bytes,
            include_batch_across_end=include_batch_across_end,
        )
        return fetcher.run()

    def fetch(
        self,
        positions: Sequence[ReadPosition],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
    ) -> FetchResult:
        """One round over all leaders, without retries: for callers that keep their own positions."""
        return fetch_once(
            self._cluster,
            positions,
            isolation=isolation,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
        )

    def idempotent_producer(self, identity: ProducerIdentity | None = None) -> IdempotentProducer:
        """A producer with an id of its own, or one that goes on where an earlier run stopped."""
        return IdempotentProducer(self._cluster, identity)

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
