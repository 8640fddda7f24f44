"""Gaps in a producer's sequence, of which only the true leader may tell, and not at once.

A leader that is cut off from the cluster, and not from its clients, does not know of its successor. It acknowledges
nothing that all replicas must have; but to a producer that has gone on with the successor it would say that batches are
missing, and a client that is told so may give up, or send again under a new epoch what is written already. So before a
leader says it, a majority of the quorum has to know of no other; where that cannot be confirmed, it does not lead.

A leader that has just followed another one does not say it either: the batch that is missing may be in flight to its
predecessor, which was cut off, and come here when the client gives that up. Clients send the next ones here meanwhile.
So a producer that such a leader does not know starts at sequence 0: taken for its first, a later batch would shut out
for good what comes before it. Nor does the first leader of a new topic say it at first: it may have refused the batch
that is missing before it knew of the topic, and librdkafka takes the next one that is written for an answer to both.
Any other leader takes what it gets: retention may have deleted what the producer wrote.
"""

from collections.abc import Sequence

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch
from quorate.metadata.store import MetadataStore
from quorate.records.batch import BatchHeader
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.storage.producer_state import comes_after


class SequenceGap(msgspec.Struct, frozen=True):
    #: Where the answer stands in the response.
    position: int
    partition: Partition
    #: What the partition was led with when it refused the batch.
    leader_epoch: LeaderEpoch
    #: Whether the batch that is missing may still come.
    may_be_early: bool

    @classmethod
    def of(cls, position: int, leading: Leading, header: BatchHeader) -> "SequenceGap":
        entry = leading.partition.log.producers.get(header.producer_id)
        if entry is None:
            is_missing_before = True
        elif leading.is_first_epoch:
            is_missing_before = False  # All that it wrote came here.
        else:  # Not one that comes again after it was written long ago.
            is_missing_before = header.producer_epoch > entry.epoch or comes_after(
                header.base_sequence, entry.last_sequence
            )
        partition = leading.partition
        return cls(position, partition, partition.leader_epoch, is_missing_before and leading.may_get_batches_early)

    @property
    def is_told_by_the_leader(self) -> bool:
        return self.partition.leader_epoch == self.leader_epoch


def is_gap(error: KafkaError) -> bool:
    return error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def not_confirmed(metadata: MetadataStore, gaps: Sequence[SequenceGap]) -> dict[int, KafkaError]:
    """What is to be answered in the place of those gaps that may not be true, by position."""
    if not gaps:
        return {}
    is_current = not all(gap.may_be_early for gap in gaps) and await metadata.is_current()
    return {
        gap.position: KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for gap in gaps
        if not (is_current and gap.is_told_by_the_leader) or gap.may_be_early
    }
