"""Security as a part of the metadata image: commands change it, snapshots and logs keep it."""

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.metadata.core.commands import Command, CreateTopic
from quorate.metadata.core.controller import cost_of
from quorate.metadata.core.decisions import DeletedAcls
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.records import AnyRecord, decode_record, encode_record
from quorate.metadata.core.security_commands import (
    CreateAcl,
    CreateDelegationToken,
    DeleteAcls,
    DeleteScramCredential,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
    SetScramCredential,
)
from quorate.metadata.core.snapshot import decode_image, encode_image
from quorate.security.acls import Acl, AclFilter, AclOperation, AclResourceType
from quorate.security.principals import user
from quorate.security.scram_credentials import ScramCredential, ScramMechanism
from tests.unit.metadata.core.cluster import Cluster

ALICE, BOB = user("alice"), user("bob")
HOUR_MS = 3_600_000
ACL = Acl(
    resource_type=AclResourceType.TOPIC, resource_name="orders", principal="User:alice", operation=AclOperation.READ
)
CREDENTIAL = ScramCredential(salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4_096)
SET_ALICE = SetScramCredential(user="alice", mechanism=ScramMechanism.SCRAM_SHA_256, credential=CREDENTIAL)
MAKE_TOKEN = CreateDelegationToken(token_id="t", owner=ALICE, requester=ALICE, renewers=(BOB,))


def with_security(**configs: str) -> tuple[Cluster, list[AnyRecord]]:
    cluster = Cluster(nodes=(7,), **configs)
    records: list[AnyRecord] = []
    commands: list[Command] = [
        CreateAcl(acl=ACL),
        CreateAcl(acl=msgspec.structs.replace(ACL, principal="User:bob")),
        SET_ALICE,
        MAKE_TOKEN,
        RenewDelegationToken(token_id="t", requester=BOB, period_ms=HOUR_MS),
    ]
    for command in commands:
        records += cluster.do(command).records
    return cluster, records


def test_records_of_security_survive_the_log() -> None:
    _, records = with_security()

    assert len(records) == 5
    assert [decode_record(encode_record(record)) for record in records] == records


def test_a_snapshot_holds_acls_users_and_tokens_and_no_password() -> None:
    cluster, _ = with_security(delegation_token_secret_key="the master key")

    snapshot = encode_image(cluster.image)

    assert decode_image(snapshot) == cluster.image
    assert decode_image(snapshot).security == cluster.image.security
    assert b"the master key" not in snapshot


def test_a_snapshot_of_a_node_that_knew_no_security_is_read() -> None:
    cluster = Cluster(nodes=(7,))
    cluster.do(CreateTopic(name="orders", partition_count=1, replication_factor=1))
    older = msgspec.msgpack.decode(encode_image(cluster.image))
    assert not any(str(record["kind"]).startswith(("acl", "scram", "delegation")) for record in older["records"])

    image = decode_image(msgspec.msgpack.encode(older))

    assert image == cluster.image
    assert not image.security.acls


def test_what_security_records_do_not_touch_is_shared_between_images() -> None:
    cluster, _ = with_security()
    before = cluster.image

    cluster.do(CreateTopic(name="orders", partition_count=1, replication_factor=1))

    assert cluster.image.security is before.security


def test_deleted_acls_are_the_answer_and_gone() -> None:
    cluster, _ = with_security()

    deleted = cluster.do(DeleteAcls(filter=AclFilter(principal="User:alice"))).answer

    assert deleted == DeletedAcls((ACL,))
    assert cluster.do(DeleteAcls(filter=AclFilter(principal="User:alice"))).answer == DeletedAcls(())
    assert [acl.principal for acl in cluster.image.security.acls] == ["User:bob"]


def test_a_user_is_deleted_once() -> None:
    cluster, _ = with_security()
    delete = DeleteScramCredential(user="alice", mechanism=ScramMechanism.SCRAM_SHA_256)

    cluster.do(delete)

    refusal = cluster.refusal(delete)
    assert refusal is not None
    assert refusal.code is ErrorCode.RESOURCE_NOT_FOUND


def test_tokens_live_by_the_controllers_clock_and_configs() -> None:
    cluster = Cluster(
        nodes=(7,), delegation_token_max_lifetime_ms=str(10 * HOUR_MS), delegation_token_expiry_time_ms=str(2 * HOUR_MS)
    )
    cluster.now_ms = 1_000

    token = cluster.do(MAKE_TOKEN).answer.token

    assert (token.issued_ms, token.expires_ms, token.max_ms) == (1_000, 1_000 + 2 * HOUR_MS, 1_000 + 10 * HOUR_MS)
    cluster.now_ms += HOUR_MS
    renewal = cluster.do(RenewDelegationToken(token_id="t", requester=ALICE))
    assert renewal.answer.expires_ms == 1_000 + 3 * HOUR_MS
    shortening = cluster.do(ExpireDelegationToken(token_id="t", requester=ALICE, period_ms=10))
    assert shortening.answer.expires_ms == cluster.now_ms + 10
    cluster.now_ms += 11
    cluster.do(RemoveExpiredTokens())
    assert not cluster.image.security.tokens


def test_a_token_that_ends_at_once_has_ended_now() -> None:
    cluster, _ = with_security()
    cluster.now_ms = 77

    ended = cluster.do(ExpireDelegationToken(token_id="t", requester=ALICE, period_ms=-1))

    assert ended.answer.expires_ms == 77
    assert not cluster.image.security.tokens


def test_a_look_at_all_acls_counts_as_so_much_work() -> None:
    image, _ = MetadataImage().replay(
        [
            record
            for number in range(1_000)
            for record in Cluster(nodes=())
            .do(CreateAcl(acl=msgspec.structs.replace(ACL, resource_name=f"t{number}")))
            .records
        ],
        Offset(1),
    )

    assert cost_of(image, [DeleteAcls(filter=AclFilter())]) > 1_000


def test_errors_of_security_leave_the_image_as_it_is() -> None:
    cluster, _ = with_security()
    before = cluster.image

    with pytest.raises(KafkaError):
        cluster.do(CreateAcl(acl=msgspec.structs.replace(ACL, principal="alice")))

    assert cluster.image is before
