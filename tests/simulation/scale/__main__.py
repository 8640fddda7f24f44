"""Prints what clusters of some sizes cost, as tables.

python -m tests.simulation.scale --nodes 10 20 50 --partitions 10000 100000 [--topic-partitions 1000]
python -m tests.simulation.scale --whole --nodes 5 20 --partitions 300      whole nodes, with logs and links
"""

import argparse
import logging
import sys

from tests.simulation.scale.run import Size, SizeCosts, measure_size
from tests.simulation.scale.whole_nodes import NodeCosts, measure_whole_nodes

_HEADS = (
    "| what happens | entries | records | MB agreed on | largest entry, MB | MB sent by the leader "
    "| controller, ms | each node, ms | longest read, ms | longest replay, ms |"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[50])
    parser.add_argument("--partitions", type=int, nargs="+", default=[100_000])
    parser.add_argument("--topic-partitions", type=int, default=1_000, help="of each topic")
    parser.add_argument("--whole", action="store_true", help="simulate whole nodes: for some hundred partitions")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for nodes in options.nodes:
        for partitions in options.partitions:
            print(f"\n{nodes} nodes, {partitions:,} partitions x 3\n", flush=True)
            if options.whole:
                _show_whole(measure_whole_nodes(nodes, partitions))
            else:
                size = Size(nodes=nodes, partitions=partitions, topic_partitions=options.topic_partitions)
                _show(measure_size(size))
    return 0


def _show(costs: SizeCosts) -> None:
    print(_HEADS)
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, cost in costs.operations.items():
        sent = cost.entry_bytes * (costs.size.nodes - 1)
        print(
            f"| {name} | {cost.entries} | {cost.records:,} | {_mb(cost.entry_bytes)} | {_mb(cost.largest_entry_bytes)} "
            f"| {_mb(sent)} | {_ms(cost.controller_s)} | {_ms(cost.node_s)} | {_ms(cost.longest_read_s)} "
            f"| {_ms(cost.longest_replay_s)} |"
        )
    image = costs.image
    memory = "-" if image.memory_bytes is None else _mb(image.memory_bytes)
    print(
        f"\nimage: {memory} MB of memory, snapshot {_mb(image.snapshot_bytes)} MB, written in "
        f"{_ms(image.encode_s)} ms, loaded in {_ms(image.decode_s)} ms, compared with nothing in "
        f"{_ms(image.difference_s)} ms; a look at the balance {_ms(image.balance_look_s)} ms"
    )
    print(
        f"Metadata of all topics: {_mb(image.all_topics_bytes)} MB, {_ms(image.all_topics_s)} ms at the node, "
        f"{_ms(image.all_topics_read_s)} ms to read; of one topic: {image.one_topic_bytes:,} bytes, "
        f"{_ms(image.one_topic_s)} ms",
        flush=True,
    )


def _show_whole(costs: dict[str, NodeCosts]) -> None:
    print(
        "| what happens | virtual s | quorum leader, ms | another node, ms | the busiest other, ms "
        "| KB sent by the leader | KB sent by all |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, cost in costs.items():
        print(
            f"| {name} | {cost.virtual_s:.2f} | {_ms(cost.leader_s)} | {_ms(cost.other_s)} | {_ms(cost.most_other_s)} "
            f"| {cost.leader_bytes / 1e3:,.0f} | {cost.all_bytes / 1e3:,.0f} |",
            flush=True,
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}"


def _mb(count: int) -> str:
    return f"{count / 1e6:,.2f}"


if __name__ == "__main__":
    sys.exit(main())
