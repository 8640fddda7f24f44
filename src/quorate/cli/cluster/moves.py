"""Carrying out a plan of reassignments: shown, asked for, and watched until every move is done."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quorate.cli.cluster.options import node_list
from quorate.cli.counted import counted
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError

if TYPE_CHECKING:
    from quorate.client.kafka_client import KafkaClient
    from quorate.kernel.ids import TopicPartition
    from quorate.metadata.core.commands import PartitionReassignment
    from quorate.metadata.core.image import MetadataImage

_LOOK_INTERVAL_S = 0.1
_SAY_INTERVAL_S = 5.0


def show_plan(image: "MetadataImage", plan: "Sequence[PartitionReassignment]") -> None:
    for move in plan:
        before = image.partition_replicas(move.topic, move.partition)
        print(f"{move.topic}-{move.partition}: {node_list(before)} -> {node_list(move.replicas or ())}")


def carry_out(client: "KafkaClient", plan: "Sequence[PartitionReassignment]") -> None:
    """Ask for the moves and return when all are done; they go on by themselves if the command is stopped."""
    from quorate.kernel.ids import TopicPartition

    names = [TopicPartition(move.topic, move.partition) for move in plan]
    try:
        client.reassignments.alter({name: move.replicas for name, move in zip(names, plan, strict=True)})
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        raise QuorateError("replicas moved while the plan was made: run the command again") from error
    wait_for_moves(client, names)


def wait_for_moves(client: "KafkaClient", names: "Sequence[TopicPartition]") -> None:
    moving, last_said = set(names), 0.0
    while moving:
        moving &= set(client.reassignments.ongoing())
        if moving and time.monotonic() - last_said >= _SAY_INTERVAL_S:
            print(f"{len(names) - len(moving)} of {counted(len(names), 'partition')} moved", flush=True)
            last_said = time.monotonic()
        if moving:
            time.sleep(_LOOK_INTERVAL_S)
    print(f"{counted(len(names), 'partition')} moved", flush=True)
