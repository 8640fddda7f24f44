"""Thousands of worlds are made one after the other in one process: what one of them was made of does not stay."""

import gc
from weakref import WeakSet

from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World

_WORLDS = 20
#: The last one, the one before it that was still held when the last was made, and one to spare.
_KEPT_WORLDS = 3


def test_a_world_that_is_over_is_gone_when_later_ones_are_made() -> None:
    collects_garbage = gc.isenabled()
    gc.disable()  # Only the worlds themselves collect.
    hosts: WeakSet[SimulatedHost] = WeakSet()
    try:
        for seed in range(_WORLDS):
            with World(seed) as world:
                hosts.add(world.add_host("one"))
                world.run_for(1)
        assert len(hosts) <= _KEPT_WORLDS
    finally:
        if collects_garbage:
            gc.enable()
