"""Large clusters in small: their costs grow as the model of docs/scale.md says, which whole nodes confirm."""

from quorate.kernel.ids import NodeId
from tests.simulation.scale.agreed import FIRST_NODE, AgreedCluster
from tests.simulation.scale.operations import change_one_isr, create_topics, form, kill
from tests.simulation.scale.run import Size, measure_size
from tests.simulation.scale.whole_nodes import measure_whole_nodes

#: A partition in an entry: its ids, replicas, epochs, and the names of these fields.
_MOST_BYTES_A_RECORD = 200


def test_what_happens_to_a_cluster_costs_as_many_records_as_partitions_are_concerned() -> None:
    costs = measure_size(Size(nodes=6, partitions=600, topic_partitions=100), with_memory=False)
    operations = costs.operations
    assert operations["create all topics"].records == 606
    assert operations["change one ISR"].records == 1
    # All that it held, and itself.
    assert operations["kill a node"].records == 1 + 600 * 3 // 6
    assert operations["kill a node"].entries == 1
    # As many again when it is in sync, in one entry for each leader.
    assert operations["bring it back"].records == 2 + 600 * 3 // 6
    assert operations["bring it back"].entries <= 2 + 6
    for name, cost in operations.items():
        assert cost.entry_bytes <= _MOST_BYTES_A_RECORD * cost.records, name
    assert costs.image.snapshot_bytes <= _MOST_BYTES_A_RECORD * 700


def test_a_small_change_costs_as_many_bytes_in_a_large_cluster() -> None:
    sizes = []
    for topics in (2, 20):
        cluster = AgreedCluster()
        form(cluster, 6)
        create_topics(cluster, "topic", topics, 50)
        sizes.append(change_one_isr(cluster).entry_bytes)
    assert sizes[0] == sizes[1]


def test_whole_nodes_send_what_the_model_says() -> None:
    nodes, partitions = 5, 60
    cluster = AgreedCluster()
    form(cluster, nodes)
    created = create_topics(cluster, "topic", 1, partitions)
    killed = kill(cluster, NodeId(FIRST_NODE + 1))
    costs = measure_whole_nodes(nodes, partitions)
    # Each entry goes to each other node; the rest is heartbeats, followers that begin to fetch, and the answer.
    assert 1 <= costs["create"].leader_bytes / (created.entry_bytes * (nodes - 1)) < 2
    assert 1 <= costs["kill"].leader_bytes / (killed.entry_bytes * (nodes - 2)) < 3
    assert costs["add"].all_bytes > costs["create"].all_bytes
    # Partitions that nothing happens to cost nothing.
    assert costs["nothing with partitions"].all_bytes < 1.5 * costs["nothing"].all_bytes
