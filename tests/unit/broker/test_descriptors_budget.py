import pytest

from quorate.broker.descriptors import PLENTY, SPARE, budget_of
from quorate.kernel.errors import QuorateError


@pytest.mark.parametrize("limit", [160, 256, 1024, 4096, 65536, 1 << 20])
def test_what_is_given_out_never_exceeds_the_limit_and_everybody_gets_some(limit: int) -> None:
    budget = budget_of(limit, in_use=20)

    assert 20 + SPARE + budget.files + budget.connections + budget.peers == limit
    assert min(budget.files, budget.connections) >= 16
    assert 0 < budget.strangers < budget.peers
    assert budget.is_low == (limit < PLENTY)


def test_the_sentence_says_what_the_limit_means_and_what_to_do() -> None:
    assert budget_of(256, in_use=20).advice == (
        "the limit of open files is 256, so the node keeps 78 files open and takes 78 connections of clients at a "
        "time; raise it (ulimit -n, LimitNOFILE= of systemd) to 4096 or more"
    )


@pytest.mark.parametrize("limit", [0, 1, 64, 131])
def test_a_node_that_could_do_nothing_is_not_begun(limit: int) -> None:
    with pytest.raises(QuorateError, match=f"the limit of open files is {limit} and a node needs 132: raise it"):
        budget_of(limit, in_use=20)


def test_it_begins_with_what_it_says_that_it_needs() -> None:
    assert budget_of(132, in_use=20).files == 16
