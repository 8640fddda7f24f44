"""What a large metadata image costs by itself: to hold, to store, to load, to look through and to tell clients of."""

import asyncio
import gc
import subprocess
import sys
import time
from random import Random

import msgspec

from quorate.kernel.ids import TopicName
from quorate.metadata.core.elections import preferred_leader_imbalance
from quorate.metadata.core.image import MetadataImage, difference
from quorate.metadata.core.rebalancing import replacement_plan
from quorate.metadata.core.replica_changes import list_reassignments
from quorate.metadata.core.snapshot import decode_image, encode_image
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.simulation.disk import SimulatedDisk
from tests.simulation.scale.agreed import timed
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode

_VERSION = 12


class ImageCosts(msgspec.Struct, frozen=True, kw_only=True):
    snapshot_bytes: int
    encode_s: float
    #: What a node pays that starts with a snapshot, or is sent one.
    decode_s: float
    #: What is new against nothing: the way a starting node opens its logs.
    difference_s: float
    #: Of one image in a process that holds nothing else; None where it was not asked for.
    memory_bytes: int | None
    #: The quorum leader looks through all partitions some time after each change.
    balance_look_s: float
    #: Metadata about all topics, and about one.
    all_topics_s: float
    all_topics_bytes: int
    all_topics_read_s: float
    one_topic_s: float
    one_topic_bytes: int


def measure_image(image: MetadataImage, *, with_memory: bool = True) -> ImageCosts:
    payload, encode_s = timed(lambda: encode_image(image))
    gc.collect()
    _, decode_s = timed(lambda: decode_image(payload))
    _, difference_s = timed(lambda: difference(MetadataImage(), image))
    _, balance_look_s = timed(
        lambda: (replacement_plan(image), list_reassignments(image), preferred_leader_imbalance(image))
    )
    everything = asyncio.run(_ask(image, MetadataRequest(topics=None)))
    first = next(iter(image.topics))
    one = asyncio.run(_ask(image, MetadataRequest(topics=[MetadataRequestTopic(name=TopicName(first))])))
    return ImageCosts(
        snapshot_bytes=len(payload),
        encode_s=encode_s,
        decode_s=decode_s,
        difference_s=difference_s,
        memory_bytes=_memory_bytes(payload) if with_memory else None,
        balance_look_s=balance_look_s,
        all_topics_s=everything[0],
        all_topics_bytes=everything[1],
        all_topics_read_s=everything[2],
        one_topic_s=one[0],
        one_topic_bytes=one[1],
    )


async def _ask(image: MetadataImage, request: MetadataRequest) -> tuple[float, int, float]:
    """Time to answer, bytes of the answer, and time to read it, at a node that has the image and nothing else."""
    node = SimulatedNode(SimulatedDisk(Random(1)), SimulatedClock(), Random(2))
    await node.start()
    node.node.metadata.image = image
    started = time.thread_time()
    reply = await node.finish(node.send(request, _VERSION))
    answered_s = time.thread_time() - started
    response, read_s = timed(lambda: node.decode(reply, MetadataResponse, _VERSION))
    assert len(response.topics) == (len(image.topics) if request.topics is None else 1)
    await node.stop()
    return answered_s, sum(map(len, reply)), read_s


def _memory_bytes(payload: bytes) -> int:
    """By how much a process grows that loads it."""
    command = [sys.executable, "-m", "tests.simulation.scale.memory"]
    return int(subprocess.run(command, input=payload, capture_output=True, check=True).stdout)
