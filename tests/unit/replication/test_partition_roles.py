"""One replica through its roles: leading, following, idle; what each change tells those who wait."""

from collections.abc import Sequence

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import EpochEnd, LeaderEpoch, Offset
from quorate.kernel.settings import Durability
from quorate.replication.core.leader import ReplicationConfig
from quorate.replication.core.leader_events import FollowerFetched, MembershipChanged, PartitionMembership
from quorate.replication.core.messages import FetchedPartition
from quorate.replication.following import Applied, Following
from quorate.replication.leading import require_leading
from quorate.replication.partition import Partition
from quorate.storage.reading import UncheckedSegment
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.replication.replicas import BROKER_EPOCHS, FOLLOWER, LEADER, Replicas, batch, follow, lead, run, write


class CountingWatcher:
    def __init__(self) -> None:
        self.changes = 0

    def partition_changed(self, partition: Partition) -> None:
        self.changes += 1

    def stop_waiting(self) -> None:
        raise AssertionError("the node does not stop")


class Outcomes:
    """What a write was told, however often."""

    def __init__(self) -> None:
        self.told: list[ErrorCode | None] = []

    def __call__(self, error: KafkaError | None) -> None:
        self.told.append(None if error is None else error.code)


def fetched(offset: int) -> FollowerFetched:
    return FollowerFetched(
        follower=FOLLOWER, broker_epoch=BROKER_EPOCHS[FOLLOWER], fetch_offset=Offset(offset), now_ms=0
    )


def following(partition: Partition) -> Following:
    assert isinstance(partition.role, Following)
    return partition.role


def apply(partition: Partition, answer: FetchedPartition, records: bytes = b"") -> Applied:
    return following(partition).apply(msgspec.structs.replace(answer, records=memoryview(records)))


def answered(
    partition: Partition,
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    diverging: EpochEnd | None = None,
) -> FetchedPartition:
    """The leader's answer to what the partition would ask for now."""
    return FetchedPartition(
        fetch=following(partition).next_fetch(),
        error=error,
        diverging_epoch=diverging,
        log_start_offset=Offset(log_start),
        high_watermark=Offset(high_watermark),
        records=memoryview(b""),
    )


def led_batch(host: SimulatedHost, *values: bytes) -> bytes:
    return led_batches(host, values)


def led_batches(host: SimulatedHost, *batches: Sequence[bytes]) -> bytes:
    """What the leader of epoch 1 would hand out, its log being empty before."""
    source = Replicas(host).open(index=99)
    lead(source, 1, isr=(LEADER,), replicas=(LEADER,))
    for values in batches:
        write(source, *values)
    log = source.log
    return log.read(Offset(0), max_bytes=1 << 20, up_to_offset=log.log_end_offset, minimum_one_batch=True).read()


def test_a_write_waits_for_the_other_replica_and_for_the_leaders_own_disk() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1)
        write(partition, b"x")
        outcomes = Outcomes()
        partition.when_committed(Offset(1), outcomes)
        partition.step(fetched(1))
        assert outcomes.told == []  # The leader's sync is under way.
        await world.sleep(0.01)
        assert outcomes.told == [None]

    run(scenario)


def test_a_write_with_acks_1_waits_for_the_disk_of_the_leader_that_alone_is_in_sync() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,))
        write(partition, b"x")
        outcomes = Outcomes()
        partition.when_readable(Offset(1), outcomes)
        assert outcomes.told == []
        await world.sleep(0.01)
        assert (outcomes.told, partition.high_watermark) == ([None], 1)

    run(scenario)


def test_a_write_with_acks_1_does_not_wait_for_other_replicas_that_are_or_come_into_sync() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,))
        write(partition, b"x")
        outcomes = Outcomes()
        partition.when_readable(Offset(1), outcomes)
        grown = PartitionMembership(replicas=(LEADER, FOLLOWER), isr=frozenset({LEADER, FOLLOWER}), partition_epoch=9)
        partition.step(MembershipChanged(membership=grown))
        assert (outcomes.told, partition.high_watermark) == ([None], 0)
        partition.when_readable(Offset(1), outcomes)
        assert outcomes.told == [None, None]

    run(scenario)


def test_a_write_with_acks_1_is_told_when_the_disk_fails_or_leadership_is_lost_before_it_can_be_read() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,))
        write(partition, b"x")
        deposed, failed, late = Outcomes(), Outcomes(), Outcomes()
        partition.when_readable(Offset(1), deposed)
        follow(partition, 2, FOLLOWER)
        partition.when_readable(Offset(1), late)
        assert (deposed.told, late.told) == ([ErrorCode.NOT_LEADER_OR_FOLLOWER], [ErrorCode.NOT_LEADER_OR_FOLLOWER])
        lead(partition, 3, isr=(LEADER,))
        write(partition, b"y")
        partition.when_readable(Offset(2), failed)
        partition.sync_failed(OSError("no"))
        partition.when_readable(Offset(2), failed)
        assert failed.told == [ErrorCode.KAFKA_STORAGE_ERROR] * 2

    run(scenario)


def test_with_durability_os_a_write_of_a_leader_that_alone_is_in_sync_can_be_read_at_once() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        lead(partition, 1, isr=(LEADER,), config=ReplicationConfig(requires_sync=False))
        write(partition, b"x")
        outcomes = Outcomes()
        partition.when_readable(Offset(1), outcomes)
        assert outcomes.told == [None]

    run(scenario)


def test_waiting_writes_end_once_when_leadership_is_lost() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1)
        watcher, outcomes = CountingWatcher(), Outcomes()
        partition.watch(watcher)
        write(partition, b"x")
        partition.when_committed(Offset(1), outcomes)
        follow(partition, 2, FOLLOWER)
        assert outcomes.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert watcher.changes == 1
        lead(partition, 3, isr=(LEADER,))
        await world.sleep(0.01)
        assert partition.high_watermark == 1
        assert outcomes.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert watcher.changes >= 2

    run(scenario)


def test_a_write_that_comes_while_nobody_leads_is_refused_and_never_waits() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1)
        partition.wait_for_leader(LeaderEpoch(2))
        outcomes = Outcomes()
        partition.when_committed(Offset(1), outcomes)
        assert outcomes.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(scenario)


def test_the_watermark_does_not_move_back_when_a_leader_leads_again() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,))
        write(partition, b"x")
        await world.sleep(0.01)
        assert partition.high_watermark == 1
        partition.wait_for_leader(LeaderEpoch(2))
        lead(partition, 3)
        assert partition.high_watermark == 1

    run(scenario)


def test_a_follower_may_not_speak_for_what_is_not_on_its_disk_when_the_leader_changes() -> None:
    """Its next fetch offset says "I have it": after a power cut it would not have it."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        follow(partition, 1)
        applied = apply(partition, answered(partition), led_batch(host, b"x"))
        assert applied is Applied.SYNCING
        assert not following(partition).may_ask
        follow(partition, 2, FOLLOWER)
        assert not following(partition).may_ask
        await world.sleep(0.01)
        assert following(partition).may_ask

    run(scenario)


def test_with_durability_os_a_follower_asks_on_at_once() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        assert apply(partition, answered(partition), led_batch(host, b"x")) is Applied.DONE
        assert following(partition).may_ask

    run(scenario)


def test_an_unclean_leader_takes_the_watermark_back_with_the_records() -> None:
    """Else a reader of this replica would see what the new leader has written there before it is committed."""

    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        apply(partition, answered(partition, high_watermark=2), led_batches(host, [b"x"], [b"y"]))
        assert partition.high_watermark == 2
        follow(partition, 2, FOLLOWER, is_unclean=True)
        diverging = EpochEnd(leader_epoch=LeaderEpoch(1), end_offset=Offset(1))
        apply(partition, answered(partition, diverging=diverging))
        assert partition.log.log_end_offset == 1
        assert partition.high_watermark == 1

    run(scenario)


def test_a_leader_without_committed_records_stops_a_follower_loudly() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        apply(partition, answered(partition, high_watermark=1), led_batch(host, b"x"))
        follow(partition, 2, FOLLOWER)
        diverging = EpochEnd(leader_epoch=LeaderEpoch(-1), end_offset=Offset(0))
        assert apply(partition, answered(partition, diverging=diverging)) is Applied.BACK_OFF
        assert partition.log.log_end_offset == 1
        assert partition.failure is not None

    run(scenario)


def test_the_error_of_a_replica_that_has_failed_keeps_nothing_of_those_who_were_told() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        failure = UncheckedSegment(partition.log.segments.active)
        partition.fail(failure)
        with pytest.raises(UncheckedSegment, match="is being checked") as told:
            require_leading(partition)
        with pytest.raises(UncheckedSegment, match="is being checked"):
            partition.append(memoryview(b""), 0)
        assert (told.value.code, told.value.segment) == (failure.code, failure.segment)
        assert failure.__traceback__ is None

    run(scenario)


def test_a_full_disk_makes_a_follower_wait_and_not_give_up() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        records = led_batch(host, b"x" * 1000)
        free_bytes, host.disk.free_bytes = host.disk.free_bytes, 10
        assert apply(partition, answered(partition), records) is Applied.BACK_OFF
        assert partition.failure is None
        host.disk.free_bytes = free_bytes
        assert apply(partition, answered(partition), records) is Applied.DONE
        assert partition.log.log_end_offset == 1

    run(scenario)


def test_a_log_that_starts_inside_of_a_batch_can_be_followed_from_nothing() -> None:
    """DeleteRecords cuts where it was asked to; batches are stored whole."""

    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        records = led_batch(host, b"a", b"b", b"c")
        out_of_range = answered(partition, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=2, high_watermark=3)
        assert apply(partition, out_of_range) is Applied.DONE
        assert partition.log.log_end_offset == 2
        got = apply(partition, answered(partition, log_start=2, high_watermark=3), records)
        assert (got, partition.failure) == (Applied.DONE, None)
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (2, 3)
        assert partition.high_watermark == 3

    run(scenario)


def test_a_late_answer_of_an_earlier_leader_changes_nothing() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        late = answered(partition, high_watermark=1)
        records = led_batch(host, b"x")
        follow(partition, 2, FOLLOWER)
        apply(partition, late, records)
        assert partition.log.log_end_offset == 0
        fetch = following(partition).next_fetch()
        assert (fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch) == (2, 0, -1)

    run(scenario)


def test_records_older_than_an_epoch_that_was_led_without_a_write_keep_their_own_epoch() -> None:
    """A leader that never wrote fetches what it lacked: named by the wrong epoch it would be cut off again."""

    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        lead(partition, 2, isr=(LEADER,))
        follow(partition, 3, FOLLOWER)
        apply(partition, answered(partition), led_batch(host, b"x"))
        assert partition.log.epochs == [(1, 0)]
        assert partition.replica_log.last_epoch == 1

    run(scenario)


def test_a_write_whose_time_is_up_is_forgotten() -> None:
    """A partition that cannot commit must not gather those who gave up long ago."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1)
        write(partition, b"x")
        outcomes = Outcomes()
        partition.when_committed(Offset(1), outcomes)
        partition.give_up(outcomes)
        partition.step(fetched(1))
        await world.sleep(0.01)
        assert partition.high_watermark == 1
        assert outcomes.told == []

    run(scenario)


def test_batches_keep_their_producer_so_that_a_retry_is_known_after_failover() -> None:
    async def scenario(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        partition = Replicas(host, Durability.OS).open()
        follow(partition, 1)
        source = Replicas(host).open(index=98)
        lead(source, 1, isr=(LEADER,), replicas=(LEADER,))
        source.append(batch(b"x", b"y", producer_id=5), 1_700_000_000_000)
        piece = source.log.read(Offset(0), max_bytes=1 << 20, up_to_offset=Offset(2), minimum_one_batch=True).read()
        apply(partition, answered(partition), piece)
        lead(partition, 2, isr=(LEADER,))
        retried = partition.append(batch(b"x", b"y", producer_id=5), 1_700_000_000_000)
        assert (retried.base_offset, retried.duplicate) == (0, True)
        assert partition.log.log_end_offset == 2

    run(scenario)
