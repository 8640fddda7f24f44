"""What a node reports about itself. Apache Kafka's brokers report nothing."""

import msgspec

from quorate.client.connection import Connection
from quorate.client.errors import UnsupportedApi
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId
from quorate.protocol.extensions import ReportingDescribeLogDirsResponse
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    kind: str
    subject: str
    is_problem: bool
    sentence: str


def ask_conditions(connection: Connection, node_id: NodeId) -> list[NodeCondition]:
    """None where the node does not know the call, or the asker has no right to it."""
    try:
        version = connection.versions.choose(DescribeLogDirsRequest)
    except UnsupportedApi:
        return []
    # No topics: the folders alone.
    answer = connection.ask(DescribeLogDirsRequest(topics=()), ReportingDescribeLogDirsResponse, version)
    if answer.error_code != ErrorCode.NONE:
        return []
    return [
        NodeCondition(
            node_id=node_id,
            kind=each.kind,
            subject=each.subject,
            is_problem=each.is_problem,
            sentence=each.sentence,
        )
        for each in answer.conditions
    ]
