"""The pytest plugin: ``quorate_cluster`` is a running cluster of three nodes, one for all tests of a run.

``quorate_secured_cluster`` is one with TLS, logins and ACLs.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from quorate.testing.cluster_in_process import ClusterInProcess


@pytest.fixture(scope="session")
def quorate_cluster() -> "Iterator[ClusterInProcess]":
    """Give clients its ``bootstrap_servers``. Tests share it, so let each make topics of its own."""
    from quorate.testing.cluster_in_process import ClusterInProcess

    with ClusterInProcess(nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def quorate_secured_cluster() -> "Iterator[ClusterInProcess]":
    """Give clients its ``client_settings``."""
    from quorate.testing.cluster_in_process import ClusterInProcess

    with ClusterInProcess(nodes=3, secured=True) as cluster:
        yield cluster
