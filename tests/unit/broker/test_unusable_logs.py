"""A log that cannot be used any more takes its replica with it, whoever finds it so."""

import errno

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.replication.partition import Partition
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.broker.produce.producing import produce
from tests.unit.replication.replicas import FOLLOWER, LEADER, Replicas, lead, produced, run


@pytest.mark.parametrize(("isr", "others_have_it"), [((LEADER, FOLLOWER), True), ((LEADER,), False)])
def test_a_leader_gives_up_at_the_first_write(
    isr: tuple[NodeId, ...], others_have_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        lost: list[Partition] = []
        replicas = Replicas(host)
        monkeypatch.setattr(replicas.port, "lost_its_disk", lambda partition, failure: lost.append(partition))
        partition = replicas.open()
        lead(partition, 1, isr=isr)
        partition.log.fail(OSError(errno.EIO, "broken"))

        for _attempt in range(2):
            with pytest.raises(KafkaError) as refused:
                produce(partition, produced(0))
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

        assert partition.failure is not None
        assert lost == ([partition] if others_have_it else [])

    run(scenario)


def test_nothing_is_given_up_for_a_refusal_that_passes() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))

        partition.check_disk(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left"))

        assert partition.failure is None

    run(scenario)
