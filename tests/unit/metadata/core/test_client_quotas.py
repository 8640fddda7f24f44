"""Client quotas in the metadata: who can have which, how they change, and how they are found again."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.commands import AlterClientQuota, QuotaChange
from quorate.metadata.core.quota_entities import (
    FilterComponent,
    MatchType,
    QuotaEntityPart,
    matching_quotas,
    quota_entity,
)
from quorate.metadata.core.snapshot import decode_image, encode_image
from tests.unit.metadata.core.cluster import Cluster

ALICE = QuotaEntityPart("user", "alice")
ANY_USER = QuotaEntityPart("user", None)
APP = QuotaEntityPart("client-id", "app")
RATE = "producer_byte_rate"


def alter(*parts: QuotaEntityPart, **values: float | None) -> AlterClientQuota:
    changes = tuple(QuotaChange(key=key, value=value) for key, value in values.items())
    return AlterClientQuota(entity=parts, changes=changes)


def test_a_quota_is_set_changed_and_taken_away() -> None:
    cluster = Cluster()

    cluster.do(alter(APP, producer_byte_rate=1000.0, request_percentage=12.5))
    assert cluster.image.client_quotas == {(APP,): {RATE: 1000.0, "request_percentage": 12.5}}

    cluster.do(alter(APP, producer_byte_rate=2000.0, request_percentage=None))
    assert cluster.image.client_quotas == {(APP,): {RATE: 2000.0}}

    cluster.do(alter(APP, producer_byte_rate=None))
    assert cluster.image.client_quotas == {}


def test_an_entity_is_the_same_whatever_the_order_of_its_parts() -> None:
    cluster = Cluster()
    cluster.do(alter(ALICE, APP, producer_byte_rate=1000.0))
    cluster.do(alter(APP, ALICE, consumer_byte_rate=5.0))
    assert cluster.image.client_quotas == {quota_entity((APP, ALICE)): {RATE: 1000.0, "consumer_byte_rate": 5.0}}


def test_what_changes_nothing_writes_nothing() -> None:
    cluster = Cluster()
    cluster.do(alter(APP, producer_byte_rate=1000.0))
    assert cluster.do(alter(APP, producer_byte_rate=1000.0, consumer_byte_rate=None)).records == ()


def test_quotas_outlive_a_snapshot() -> None:
    cluster = Cluster()
    cluster.do(alter(ANY_USER, consumer_byte_rate=7.0))
    cluster.do(alter(ALICE, APP, producer_byte_rate=1000.0))
    assert decode_image(encode_image(cluster.image)) == cluster.image


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (alter(producer_byte_rate=1.0), "empty client quota entity"),
        (alter(QuotaEntityPart("rack", "a"), producer_byte_rate=1.0), "Unhandled client quota entity type: rack"),
        (alter(QuotaEntityPart("user", ""), producer_byte_rate=1.0), "Empty user not supported"),
        (alter(ALICE, ANY_USER, producer_byte_rate=1.0), "named twice"),
        (alter(ALICE, QuotaEntityPart("ip", "10.0.0.1"), connection_creation_rate=1.0), "cannot be one for a user"),
        (
            alter(QuotaEntityPart("ip", "10.0.0"), connection_creation_rate=1.0),
            "10.0.0 is not a valid IP or resolvable",
        ),
        (alter(QuotaEntityPart("ip", "a host"), connection_creation_rate=1.0), "is not a valid IP or resolvable host"),
        (alter(QuotaEntityPart("ip", "h" * 254), connection_creation_rate=1.0), "is not a valid IP or resolvable host"),
        (alter(QuotaEntityPart("ip", None), connection_creation_rate=2.0**31), "must be at most 2147483647"),
        (alter(APP, consumer_byte_rate=1e19), "must be at most 9223372036854775807"),
        (alter(APP, request_percentage=-1.0), "must be greater than 0"),
        (alter(QuotaEntityPart("ip", None), producer_byte_rate=1.0), f"Invalid configuration key {RATE}"),
        (alter(APP, connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
        (alter(APP, producer_byte_rate=0.5), "cannot be a fractional value"),
        (alter(APP, producer_byte_rate=0.0), "must be greater than 0"),
        (alter(APP, producer_byte_rate=float("nan")), "must be greater than 0"),
    ],
)
def test_quotas_that_make_no_sense_are_refused(command: AlterClientQuota, message: str) -> None:
    refused = Cluster().refusal(command)
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert message in str(refused.message)


@pytest.mark.parametrize("host", ["10.0.0.7", "2001:db8::7", "client.example", "client-7", "a_host"])
def test_an_address_or_a_host_can_have_a_quota(host: str) -> None:
    cluster = Cluster()
    entity = QuotaEntityPart("ip", host)
    cluster.do(alter(entity, connection_creation_rate=7.0))
    assert cluster.image.client_quotas == {(entity,): {"connection_creation_rate": 7.0}}


def test_a_key_that_is_named_twice_is_refused() -> None:
    changes = (QuotaChange(key=RATE, value=1.0), QuotaChange(key=RATE, value=2.0))
    refused = Cluster().refusal(AlterClientQuota(entity=(APP,), changes=changes))
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REQUEST


def component(entity_type: str, match_type: int, name: str | None = None) -> FilterComponent:
    return FilterComponent(entity_type=entity_type, match_type=match_type, name=name)


QUOTAS = {
    (ALICE,): {RATE: 1.0},
    (ANY_USER,): {RATE: 2.0},
    (APP,): {RATE: 3.0},
    (APP, ALICE): {RATE: 4.0},
    (APP, ANY_USER): {RATE: 5.0},
}
EXACT_ALICE = component("user", MatchType.EXACT, "alice")


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, {1.0, 2.0, 3.0, 4.0, 5.0}),
        ((), True, set()),
        ((EXACT_ALICE,), False, {1.0, 4.0}),
        ((EXACT_ALICE,), True, {1.0}),
        ((component("user", MatchType.DEFAULT),), False, {2.0, 5.0}),
        ((component("user", MatchType.ANY),), True, {1.0, 2.0}),
        ((component("user", MatchType.ANY), component("client-id", MatchType.EXACT, "app")), True, {4.0, 5.0}),
        ((component("ip", MatchType.ANY),), False, set()),
    ],
)
def test_a_filter_finds_the_entities_that_fit_all_of_it(
    components: tuple[FilterComponent, ...], strict: bool, expected: set[float]
) -> None:
    assert {values[RATE] for _, values in matching_quotas(QUOTAS, components, strict=strict)} == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ((component("", MatchType.ANY),), ErrorCode.INVALID_REQUEST),
        ((component("user", MatchType.ANY), EXACT_ALICE), ErrorCode.INVALID_REQUEST),
        ((component("rack", MatchType.ANY),), ErrorCode.UNSUPPORTED_VERSION),
        ((component("user", MatchType.EXACT),), ErrorCode.INVALID_REQUEST),
        ((component("user", MatchType.DEFAULT, "alice"),), ErrorCode.INVALID_REQUEST),
        ((component("user", 3),), ErrorCode.INVALID_REQUEST),
        ((component("ip", MatchType.ANY), EXACT_ALICE), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components: tuple[FilterComponent, ...], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        matching_quotas(QUOTAS, components, strict=False)
    assert refused.value.code is code
