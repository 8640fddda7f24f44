"""DescribeLogDirs, versions 1 to 4. A node has one log directory. Gap: the free space of the disk is not reported."""

from itertools import groupby

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(node: Node, context: RequestContext, request: DescribeLogDirsRequest) -> HandlerResult:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    described = sorted(
        (partition.identity.topic, partition.identity.partition, partition.log.size_bytes)
        for partition in node.partitions
        if wanted is None or (partition.identity.topic, partition.identity.partition) in wanted
    )
    topics = [
        DescribeLogDirsTopic(
            name=topic,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=size) for _, index, size in group
            ],
        )
        for topic, group in groupby(described, key=lambda row: row[0])
    ]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=node.config.data_dir, topics=topics)])


API = Api(request=DescribeLogDirsRequest, min_version=1, max_version=4, handle=handle)
