"""Client quotas as they are on the wire: changed at any node, known to all, held whether a client waits or not."""

import time
from collections.abc import Iterator

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages import alter_client_quotas as alter
from quorate.protocol.messages import api_versions, produce
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import describe_client_quotas as describe
from quorate.testing import ClusterInProcess
from tests.compat.raw_records import batch, produce_request
from tests.eventually import eventually
from tests.integration.wire_client import WireClient

IDS = (7, 100, 4001)
RATE = "producer_byte_rate"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS) as running:
        yield running


def entry(client_id: str | None, *ops: alter.OpData, entity_type: str = "client-id") -> alter.RequestEntryData:
    entity = alter.RequestEntityData(entity_type=entity_type, entity_name=client_id)
    return alter.RequestEntryData(entity=[entity], ops=ops)


def set_rate(value: float) -> alter.OpData:
    return alter.OpData(key=RATE, value=value)


def change(
    address: str, *entries: alter.RequestEntryData, version: int = 1, validate_only: bool = False
) -> list[tuple[str | None, int]]:
    """The name and the error of each entry of the answer."""
    request = alter.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    with WireClient(address) as client:
        answer = client.call(request, version, alter.AlterClientQuotasResponse)
    return [(each.entity[0].entity_name, each.error_code) for each in answer.entries]


def rates(address: str, version: int = 1) -> dict[str | None, float]:
    """What the node knows, by client id."""
    any_id = describe.ComponentData(entity_type="client-id", match_type=2, match=None)
    with WireClient(address) as client:
        request = describe.DescribeClientQuotasRequest(components=[any_id], strict=True)
        answer = client.call(request, version, describe.DescribeClientQuotasResponse)
    assert answer.error_code == ErrorCode.NONE
    return {each.entity[0].entity_name: each.values[0].value for each in answer.entries or ()}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("node_id", IDS)
def test_a_quota_that_any_node_was_given_is_known_to_all(cluster: ClusterInProcess, node_id: int, version: int) -> None:
    name = f"by-{node_id}-{version}"
    answer = change(cluster.address_of(node_id), entry(name, set_rate(12345)), version=version)

    assert answer == [(name, ErrorCode.NONE)]
    assert rates(cluster.address_of(node_id), version)[name] == 12345
    for other in IDS:
        eventually(lambda other=other: rates(cluster.address_of(other)).get(name) == 12345, "all nodes to know")  # type: ignore[misc]


def test_each_entry_has_its_own_outcome(cluster: ClusterInProcess) -> None:
    address = cluster.address_of(IDS[0])
    answer = change(
        address,
        entry("good", set_rate(5000)),
        entry("bad", set_rate(-1)),
        entry("twice", set_rate(1)),
        entry("twice", set_rate(2)),
        entry("nobody", set_rate(1), entity_type="planet"),
    )

    assert dict(answer) == {
        "good": ErrorCode.NONE,
        "bad": ErrorCode.INVALID_REQUEST,
        "twice": ErrorCode.INVALID_REQUEST,
        "nobody": ErrorCode.INVALID_REQUEST,
    }
    known = rates(address)
    assert known["good"] == 5000
    assert known.keys().isdisjoint({"bad", "twice", "nobody"})


def test_a_change_that_is_only_checked_is_not_made(cluster: ClusterInProcess) -> None:
    address = cluster.address_of(IDS[0])
    assert change(address, entry("checked", set_rate(1)), validate_only=True) == [("checked", ErrorCode.NONE)]
    assert change(address, entry("checked", set_rate(0)), validate_only=True) == [
        ("checked", ErrorCode.INVALID_REQUEST)
    ]
    assert "checked" not in rates(address)


def test_quotas_outlive_a_restart_of_all_nodes(cluster: ClusterInProcess) -> None:
    change(cluster.address_of(IDS[0]), entry(None, set_rate(987_654_321)))
    cluster.stop(*IDS)
    cluster.restart(*IDS)
    for node_id in IDS:
        eventually(lambda node_id=node_id: rates(cluster.address_of(node_id)).get(None) == 987_654_321, "the quota")  # type: ignore[misc]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_client_that_does_not_wait_is_not_heard(cluster: ClusterInProcess, acks: int) -> None:
    address = cluster.address_of(IDS[0])
    name = f"impatient-{acks}"
    records = batch(850)
    # Six tenths of a second more than fits the window of ten seconds.
    limit_per_second = len(records) / 10.6
    change(address, entry(name, set_rate(int(limit_per_second))))
    topic = created_topic(address, f"impatient-acks{acks}", leader=IDS[0])
    request = produce_request(topic, records, acks=acks)

    with WireClient(address, client_id=name) as client:
        begun = time.monotonic()
        throttle_time_ms = 600
        if acks == 0:
            client.send(request, 8)
        else:
            answer = client.call(request, 8, produce.ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert answer.throttle_time_ms >= throttle_time_ms
            throttle_time_ms = answer.throttle_time_ms
        client.call(api_versions.ApiVersionsRequest(), 0, api_versions.ApiVersionsResponse)
        waited_ms = (time.monotonic() - begun) * 1000

    # Timers may be early by what a clock does not show.
    assert waited_ms > throttle_time_ms - 20


def test_a_request_that_names_very_many_hosts_looks_none_of_them_up(cluster: ClusterInProcess) -> None:
    rate = alter.OpData(key="connection_creation_rate", value=5)
    hosts = [entry(f"host-{number}.invalid", rate, entity_type="ip") for number in range(30)]
    outcomes = change(cluster.address_of(IDS[0]), *hosts, entry("10.0.0.7", rate, entity_type="ip"))
    assert {error for name, error in outcomes if name != "10.0.0.7"} == {ErrorCode.INVALID_REQUEST}
    assert ("10.0.0.7", ErrorCode.NONE) in outcomes


def test_a_rate_of_partitions_is_one_of_the_cluster(cluster: ClusterInProcess) -> None:
    """Whichever nodes a client goes to: eleven partitions fit its bucket."""
    name = "everywhere"
    change(cluster.address_of(IDS[0]), entry(name, alter.OpData(key="controller_mutation_rate", value=0.5)))
    for node_id in IDS:
        eventually(lambda node_id=node_id: name in rates(cluster.address_of(node_id)), "all nodes to know")  # type: ignore[misc]

    def create_at(node_id: int, topic: str) -> tuple[int, int]:
        with WireClient(cluster.address_of(node_id), client_id=name) as client:
            wanted = create.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
            request = create.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
            answer = client.call(request, 7, create.CreateTopicsResponse)
        return answer.topics[0].error_code, answer.throttle_time_ms

    outcomes = [create_at(IDS[number % 3], f"{name}-{number}") for number in range(6)]
    refused = [throttle_time_ms for error, throttle_time_ms in outcomes if error]
    assert {error for error, _ in outcomes} == {ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert all(throttle_time_ms > 0 for throttle_time_ms in refused)


def created_topic(address: str, name: str, leader: int) -> str:
    assignment = create.CreatableReplicaAssignment(partition_index=0, broker_ids=[leader])
    topic = create.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    with WireClient(address) as client:
        request = create.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = client.call(request, 7, create.CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE
    return name
