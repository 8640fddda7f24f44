"""Kafka's messages with fields of Quorate's own, behind tags that Apache Kafka passes over (KIP-482)."""

from collections.abc import Sequence
from typing import Annotated

from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest
from quorate.protocol.schema import Bool, Int32, Message, String, Tagged


class CautiousUnregisterBrokerRequest(UnregisterBrokerRequest, frozen=True, kw_only=True, gc=False):
    """Kafka's own ignores whether the broker holds replicas, and a client that looks first may see an old state."""

    only_without_replicas: Annotated[Bool, Tagged(10_000)] = False
    #: Say what would become of this broker, and change nothing. The other field then names none: Apache Kafka would
    #: read that one alone, and act.
    validated_broker_id: Annotated[Int32, Tagged(10_001)] = -1


class ReportedCondition(Message, frozen=True, kw_only=True, gc=False):
    kind: String = ""
    subject: String = ""
    is_problem: Bool = True
    sentence: String = ""


class ReportingDescribeLogDirsResponse(DescribeLogDirsResponse, frozen=True, kw_only=True, gc=False):
    """Kafka's own tells of folders only; this one also how the node is."""

    conditions: Annotated[Sequence[ReportedCondition], Tagged(10_000)] = ()
