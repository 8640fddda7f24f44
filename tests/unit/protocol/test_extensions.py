"""Fields of Quorate's own: others pass over them, and who does not send them means what Apache Kafka means."""

from quorate.kernel.ids import NO_NODE
from quorate.protocol.codec import decode, encode
from quorate.protocol.extensions import (
    CautiousUnregisterBrokerRequest,
    ReportedCondition,
    ReportingDescribeLogDirsResponse,
)
from quorate.protocol.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest


def encoded(request: UnregisterBrokerRequest) -> bytes:
    return b"".join(bytes(part) for part in encode(request, 0))


def test_apache_kafka_reads_a_request_with_the_field_as_its_own() -> None:
    cautious = encoded(CautiousUnregisterBrokerRequest(broker_id=7, only_without_replicas=True))

    assert decode(UnregisterBrokerRequest, cautious, 0) == UnregisterBrokerRequest(broker_id=7)
    assert decode(CautiousUnregisterBrokerRequest, cautious, 0).only_without_replicas


def test_apache_kafka_does_nothing_to_a_broker_that_is_only_asked_about() -> None:
    question = encoded(CautiousUnregisterBrokerRequest(broker_id=NO_NODE, validated_broker_id=7))

    assert decode(UnregisterBrokerRequest, question, 0) == UnregisterBrokerRequest(broker_id=-1)
    assert decode(CautiousUnregisterBrokerRequest, question, 0).validated_broker_id == 7


def test_a_request_of_others_is_not_cautious() -> None:
    plain = encoded(UnregisterBrokerRequest(broker_id=7))

    assert plain == encoded(CautiousUnregisterBrokerRequest(broker_id=7))
    assert not decode(CautiousUnregisterBrokerRequest, plain, 0).only_without_replicas


def test_apache_kafkas_clients_pass_over_the_conditions_of_a_node() -> None:
    folder = DescribeLogDirsResult(log_dir="/data", total_bytes=9, usable_bytes=1)
    condition = ReportedCondition(kind="disk-full", subject="/data", sentence="no room")
    reporting = ReportingDescribeLogDirsResponse(results=[folder], conditions=[condition])

    for version in (2, 3, 4):
        answer = b"".join(bytes(part) for part in encode(reporting, version))
        decode(DescribeLogDirsResponse, answer, version)
        assert list(decode(ReportingDescribeLogDirsResponse, answer, version).conditions) == [condition]
    plain = b"".join(bytes(part) for part in encode(DescribeLogDirsResponse(results=[folder]), 1))
    assert b"".join(bytes(part) for part in encode(reporting, 1)) == plain
