"""Nodes with a secret, in whole clusters: strangers among them, and another secret while all goes on."""

import logging

import msgspec
import pytest

from tests.simulation.cluster.faults import FAULTS
from tests.simulation.cluster.run import run_seed
from tests.simulation.cluster.shape import Shape, draw_shape

_SEEDS = range(1, 9)


def shape_of(seed: int, *, fault_count: int, has_stranger: bool, changes_secret: bool) -> Shape:
    return msgspec.structs.replace(
        draw_shape(seed, tuple(FAULTS)),
        voters=(7, 100, 4001),
        learners=(),
        fault_count=fault_count,
        changes_membership=False,
        has_stranger=has_stranger,
        changes_secret=changes_secret,
    )


@pytest.mark.parametrize("seed", _SEEDS)
def test_another_secret_costs_no_election_and_no_answer(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    shape = shape_of(seed, fault_count=0, has_stranger=True, changes_secret=True)
    with caplog.at_level(logging.INFO, "quorate"):
        changed = run_seed(seed, shape)
    plain = run_seed(seed, msgspec.structs.replace(shape, has_stranger=False, changes_secret=False))

    assert changed.terms == plain.terms == 1
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("peer credentials changed") for line in lines) == 3 * 3
    assert not [line for line in lines if line.startswith(("peer died", "broker fenced"))]


@pytest.mark.parametrize("seed", _SEEDS)
def test_another_secret_and_a_stranger_beside_faults(seed: int) -> None:
    run_seed(seed, shape_of(seed, fault_count=6, has_stranger=True, changes_secret=True))
