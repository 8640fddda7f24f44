"""DescribeLogDirs, versions 1 to 4. A node has one log directory. The answer also carries the node's conditions."""

from itertools import groupby

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.conditions import Severity
from quorate.protocol.extensions import ReportedCondition, ReportingDescribeLogDirsResponse
from quorate.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(services: Services, context: RequestContext, request: DescribeLogDirsRequest) -> HandlerResult:
    volume = services.disk.space(services.data_dir)
    folder = DescribeLogDirsResult(
        log_dir=services.data_dir,
        topics=_topics(services, request),
        total_bytes=volume.total_bytes,
        usable_bytes=volume.free_bytes,
    )
    conditions = [
        ReportedCondition(
            kind=each.kind,
            subject=each.subject,
            is_problem=each.severity is Severity.PROBLEM,
            sentence=each.sentence,
        )
        for each in services.conditions.reported()
    ]
    return ReportingDescribeLogDirsResponse(results=[folder], conditions=conditions)


def _topics(services: Services, request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    """Those asked for; all where none are named."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        if not wanted:
            return []
    described = sorted(
        (partition.identity.topic, partition.identity.partition, partition.log.size_bytes)
        for partition in services.partitions
        if wanted is None or (partition.identity.topic, partition.identity.partition) in wanted
    )
    return [
        DescribeLogDirsTopic(
            name=topic,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=size) for _, index, size in group
            ],
        )
        for topic, group in groupby(described, key=lambda row: row[0])
    ]


API = Api(request=DescribeLogDirsRequest, min_version=1, max_version=4, handle=handle)
