"""Clusters for other people's tests: real nodes on real ports, in this process, in a fraction of a second.

    with ClusterInProcess(nodes=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

With pytest, the fixture ``quorate_cluster`` is such a cluster, shared by all tests of a run.
"""

from quorate.testing.cluster_in_process import ClusterInProcess

__all__ = ["ClusterInProcess"]
