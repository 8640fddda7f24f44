"""Fields of Quorate's own: others pass over them, and who does not send them means what Apache Kafka means."""

from quorate.kernel.ids import NO_NODE
from quorate.protocol.codec import decode, encode
from quorate.protocol.extensions import CautiousUnregisterBrokerRequest
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
