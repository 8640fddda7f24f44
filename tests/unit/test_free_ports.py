"""Ports for nodes of tests: nobody else has them."""

import json
import subprocess
import sys

from quorate.testing.cluster_in_process import free_ports

_COUNT = 100


def test_ports_are_not_given_twice_in_a_while() -> None:
    assert len(set(free_ports(_COUNT) + free_ports(_COUNT))) == 2 * _COUNT


def test_another_process_has_other_ports() -> None:
    program = (
        "import json; from quorate.testing.cluster_in_process import free_ports; "
        f"print(json.dumps(free_ports({_COUNT})))"
    )
    others = [subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True) for _ in range(3)]

    for other in others:
        assert not set(json.loads(other.stdout)) & set(free_ports(_COUNT))
