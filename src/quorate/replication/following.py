"""A replica that follows: what its leader's answers mean for its log, carried out."""

import enum
import logging

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionLeader
from quorate.kernel.ports import Buffer
from quorate.records.batch import read_header
from quorate.replication.core import follower as f
from quorate.replication.core.leader_events import HighWatermarkAdvanced
from quorate.replication.core.messages import FetchedPartition, FetchPosition
from quorate.replication.partition import Partition, ReplicaRole
from quorate.storage.log import PartitionLog
from quorate.storage.reading import DamagedRecords, UncheckedSegment

logger = logging.getLogger(__name__)


class Applied(enum.Enum):
    """What became of a leader's answer."""

    DONE = "done"  # Ask again.
    SYNCING = "syncing"  # Ask again when the log is on the disk.
    BACK_OFF = "back off"  # Ask again after a while.


def follow(partition: Partition, leader: PartitionLeader, *, is_unclean: bool) -> None:
    """Have the replica follow ``leader``; ``is_unclean`` where that one may lack what was committed."""
    partition.leave_role(leader.leader_epoch)
    following = Following(partition, f.FollowerReplica(leader, is_unclean=is_unclean))
    partition.role = following
    if not following.may_ask:
        partition.group_commit.request(partition)
    partition.tell_watchers()


class Following(ReplicaRole):
    __slots__ = ("core", "partition")

    def __init__(self, partition: Partition, core: f.FollowerReplica) -> None:
        self.partition = partition
        self.core = core

    @property
    def leader(self) -> PartitionLeader:
        return self.core.leader

    @property
    def others_have_its_records(self) -> bool:
        return True

    @property
    def may_ask(self) -> bool:
        """Whether a fetch may say where this log ends: with ``fsync`` only once all of it is on the disk."""
        partition = self.partition
        return not partition.requires_sync or partition.log.synced_end_offset >= partition.log.log_end_offset

    def synced(self) -> None:
        partition = self.partition
        if partition.log.synced_end_offset >= partition.log.log_end_offset:
            partition.replication.synced_as_follower(partition)

    def next_fetch(self) -> FetchPosition:
        """Says that everything before the log's end is here, as ``may_ask`` allows."""
        partition = self.partition
        log = partition.replica_log
        return FetchPosition(
            partition.identity.topic_id,
            partition.identity.partition,
            self.core.leader.leader_epoch,
            log.log_end_offset,
            log.last_epoch,
            partition.high_watermark,
            log.log_start_offset,
        )

    def apply(self, answer: FetchedPartition) -> Applied:
        """Carry out what the leader's answer says."""
        partition = self.partition
        if partition.failure is not None:
            return Applied.BACK_OFF
        applied = Applied.DONE
        try:
            for effect in self.core.step(answer, partition.replica_log, partition.high_watermark):
                applied = self._carry_out(effect, answer.records)
        except f.CommittedRecordsWouldBeLost as error:
            self._give_up(error)
            return Applied.BACK_OFF
        except (UncheckedSegment, DamagedRecords) as error:
            partition.sound_again(error)  # What cannot be read cannot be cut either.
            return Applied.BACK_OFF
        except KafkaError as error:
            self._append_failed(error)
            return Applied.BACK_OFF
        return applied

    def _append_failed(self, error: KafkaError) -> None:
        partition = self.partition
        partition.room.write_failed(error.__cause__)
        if partition.room.refusal is not None and partition.log.is_usable:
            return  # That is told once, for the node. Somebody may make room.
        if partition.log.is_usable:
            logger.error("not appended partition=%s epoch=%s error=%s", partition, partition.leader_epoch, error)
        else:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        partition = self.partition
        logger.error("replica failed partition=%s epoch=%s error=%s", partition, partition.leader_epoch, error)
        partition.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def _carry_out(self, effect: f.FollowerEffect, records: Buffer) -> Applied:
        partition = self.partition
        match effect:
            case f.AppendRecords():
                return self._append(records)
            case f.TruncateTo(offset=offset):
                logger.info("truncated partition=%s epoch=%s end=%s", partition, partition.leader_epoch, offset)
                self._report_loss(offset)
                partition.log.truncate_to(offset)
                partition.high_watermark = min(partition.high_watermark, offset)  # Less only after an unclean election.
            case f.TruncateFullyAndStartAt(offset=offset):
                logger.info("starts anew partition=%s epoch=%s start=%s", partition, partition.leader_epoch, offset)
                self._report_loss(offset)
                partition.log.truncate_fully_and_start_at(offset)
            case f.AdvanceLogStart(offset=offset):
                partition.log.delete_records_before(offset)
            case HighWatermarkAdvanced(offset=offset):
                partition.advance_high_watermark(offset)
            case f.BackOff():
                return Applied.BACK_OFF
        return Applied.DONE

    def _report_loss(self, offset: Offset) -> None:
        partition = self.partition
        if offset < partition.high_watermark:
            logger.error(
                "committed records lost partition=%s epoch=%s from=%s to=%s",
                partition,
                partition.leader_epoch,
                offset,
                partition.high_watermark,
            )

    def _append(self, records: Buffer) -> Applied:
        partition = self.partition
        partition.room.require()
        _append_where_the_leader_has_it(partition.log, records)
        for effect in self.core.step(f.RecordsAppended(), partition.replica_log, partition.high_watermark):
            self._carry_out(effect, b"")
        if self.may_ask:
            return Applied.DONE
        partition.group_commit.request(partition)
        return Applied.SYNCING


def _append_where_the_leader_has_it(log: PartitionLog, records: Buffer) -> None:
    """Deleted records may end inside of a batch. The leader keeps the batch whole, and so must an empty log."""
    first = read_header(records)
    start = log.log_start_offset
    if start == log.log_end_offset and first.base_offset < start <= first.last_offset:
        log.truncate_fully_and_start_at(first.base_offset)
    log.append_as_follower(records)
    if log.log_start_offset < start:
        log.delete_records_before(start)
