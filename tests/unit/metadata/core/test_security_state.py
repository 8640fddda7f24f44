"""Security in the metadata: ACLs, SCRAM users and delegation tokens are decided, replayed and found again."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core import security_changes
from quorate.metadata.core.records import (
    AclCreated,
    AclDeleted,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
    SecurityRecord,
)
from quorate.metadata.core.scram_users import (
    ScramUpsertion,
    delete_credential,
    describe_users,
    make_first_user,
    plan_changes,
    set_credential,
)
from quorate.metadata.core.security_changes import (
    TokenLifetimes,
    create_acl,
    create_token,
    delete_acls,
    expire_token,
    remove_expired,
    renew_token,
)
from quorate.metadata.core.security_commands import (
    CreateAcl,
    CreateDelegationToken,
    DeleteAcls,
    DeleteScramCredential,
    ExpireDelegationToken,
    MakeFirstUser,
    NewCredential,
    RenewDelegationToken,
    SecurityCommand,
    SetScramCredential,
)
from quorate.metadata.core.security_state import SecurityState
from quorate.security.acls import Acl, AclFilter, AclOperation, AclResourceType
from quorate.security.principals import KafkaPrincipal, user
from quorate.security.scram_credentials import (
    ScramMechanism,
    check_password,
    derive_credential,
    salted_password,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
EMPTY = SecurityState()
ALICE, BOB, EVE = user("alice"), user("bob"), user("eve")


def acl(name: str = "orders", principal: str = "User:alice") -> Acl:
    return Acl(
        resource_type=AclResourceType.TOPIC, resource_name=name, principal=principal, operation=AclOperation.READ
    )


def through_the_log(records: list[SecurityRecord]) -> list[SecurityRecord]:
    encoded = msgspec.msgpack.encode(records)
    return msgspec.msgpack.decode(encoded, type=list[SecurityRecord])


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_acls_are_created_once_and_deleted_by_what_they_are() -> None:
    created = create_acl(EMPTY, CreateAcl(acl=acl()))
    state = EMPTY.replay(created)
    assert created == (AclCreated(acl=acl()),)
    assert acl() in state.acls
    assert create_acl(state, CreateAcl(acl=acl())) == ()

    deleted = delete_acls(state, DeleteAcls(filter=AclFilter(principal="User:alice")))
    assert deleted == (AclDeleted(acl=acl()),)
    assert state.replay(deleted) == EMPTY
    assert delete_acls(EMPTY, DeleteAcls(filter=AclFilter())) == ()


def test_what_is_no_acl_or_filter_is_refused() -> None:
    with pytest.raises(KafkaError) as error:
        create_acl(EMPTY, CreateAcl(acl=acl(name="")))
    assert refusal(error) is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError) as error:
        delete_acls(EMPTY, DeleteAcls(filter=AclFilter(resource_type=AclResourceType.UNKNOWN)))
    assert refusal(error) is ErrorCode.INVALID_REQUEST


def test_not_too_many_acls_are_deleted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_changes, "MAX_DELETED", 2)
    state = EMPTY.replay(AclCreated(acl=acl(name)) for name in ("a", "b"))
    assert len(delete_acls(state, DeleteAcls(filter=AclFilter()))) == 2
    with pytest.raises(KafkaError, match="Cannot remove more than"):
        delete_acls(state.replay([AclCreated(acl=acl("c"))]), DeleteAcls(filter=AclFilter()))


def upsertion(
    name: str = "alice", iterations: int = 4096, mechanism: ScramMechanism = SHA_256, salt: bytes = b"salt"
) -> ScramUpsertion:
    salted = salted_password(SHA_256 if mechanism is ScramMechanism.UNKNOWN else mechanism, "secret", salt, 4096)
    return ScramUpsertion(user=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)


def delete(name: str) -> DeleteScramCredential:
    return DeleteScramCredential(user=name, mechanism=SHA_256)


def test_a_scram_user_is_made_changed_and_removed() -> None:
    change = plan_changes([], [upsertion()])["alice"]
    assert isinstance(change, SetScramCredential)
    records = set_credential(EMPTY, change)
    state = EMPTY.replay(records)
    credential = state.scram_credential(SHA_256, "alice")
    assert credential is not None
    assert check_password(SHA_256, credential, "secret")
    assert set_credential(state, change) == ()
    assert state.any_scram_credential("alice") == (SHA_256, credential)
    assert state.any_scram_credential("bob") is None

    removal = plan_changes([delete("alice")], [])["alice"]
    assert isinstance(removal, DeleteScramCredential)
    assert state.replay(delete_credential(state, removal)) == EMPTY
    with pytest.raises(KafkaError) as error:
        delete_credential(EMPTY, removal)
    assert refusal(error) is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        (upsertion(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            upsertion(mechanism=ScramMechanism.UNKNOWN),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt"),
        (upsertion(salt=b"x" * 2000), ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt"),
    ],
)
def test_what_is_no_credential_is_refused(changed: ScramUpsertion, code: ErrorCode, message: str) -> None:
    [error] = plan_changes([], [changed]).values()

    assert isinstance(error, KafkaError)
    assert error.code is code
    assert message in str(error)
    assert "secret" not in repr(changed)


def test_a_user_is_changed_once_in_a_request_and_others_are_not_held_up() -> None:
    plan = plan_changes(
        [delete("alice"), delete(""), delete("carl")],
        [upsertion("alice"), upsertion("bob"), upsertion("bob"), upsertion("bob"), upsertion(""), upsertion("dora")],
    )

    codes = {name: each.code for name, each in plan.items() if isinstance(each, KafkaError)}
    assert codes == {
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert isinstance(plan["carl"], DeleteScramCredential)
    assert isinstance(plan["dora"], SetScramCredential)


def test_users_are_described_without_their_keys() -> None:
    state = EMPTY.replay(
        [
            ScramCredentialChanged(
                user=name, mechanism=mechanism, credential=derive_credential(mechanism, "x", b"s", iterations)
            )
            for name, mechanism, iterations in (
                ("alice", SHA_256, 4096),
                ("alice", SHA_512, 8192),
                ("bob", SHA_512, 8192),
            )
        ]
    )

    assert describe_users(state, None) == {"alice": {SHA_256: 4096, SHA_512: 8192}, "bob": {SHA_512: 8192}}
    assert describe_users(state, []) == describe_users(state, None)
    described = describe_users(state, ["bob", "nobody", "alice", "alice"])
    assert described["bob"] == {SHA_512: 8192}
    for name, code in (("nobody", ErrorCode.RESOURCE_NOT_FOUND), ("alice", ErrorCode.DUPLICATE_RESOURCE)):
        error = described[name]
        assert isinstance(error, KafkaError)
        assert error.code is code
    shapes = {(shape.mechanism, shape.iterations, shape.is_preferred): count for shape, count in state.shapes.items()}
    assert shapes == {(SHA_256, 4096, False): 1, (SHA_512, 8192, True): 2}
    gone = state.replay([ScramCredentialChanged(user="alice", mechanism=SHA_512, credential=None)])
    shapes = {(shape.mechanism, shape.iterations, shape.is_preferred): count for shape, count in gone.shapes.items()}
    assert shapes == {(SHA_256, 4096, True): 1, (SHA_512, 8192, True): 1}


HOUR = 3_600_000
LIFETIMES = TokenLifetimes(max_lifetime_ms=10 * HOUR, expiry_ms=2 * HOUR)
CREATE = CreateDelegationToken(token_id="id", owner=ALICE, requester=BOB, renewers=(EVE,))


def with_token(now_ms: int = 0, command: CreateDelegationToken = CREATE) -> SecurityState:
    return EMPTY.replay([create_token(EMPTY, LIFETIMES, command, now_ms)])


def test_a_token_lives_until_it_is_not_renewed() -> None:
    token = with_token(now_ms=5).tokens["id"]

    assert (token.issued_ms, token.expires_ms, token.max_ms) == (5, 2 * HOUR + 5, 10 * HOUR + 5)
    assert (token.owner, token.requester, token.renewers) == (ALICE, BOB, (EVE,))
    assert not token.is_expired(2 * HOUR + 5)
    assert token.is_expired(2 * HOUR + 6)


def test_a_token_that_is_created_again_is_the_same() -> None:
    state = with_token()

    assert create_token(state, LIFETIMES, CREATE, HOUR).token == state.tokens["id"]
    assert state.replay([create_token(state, LIFETIMES, CREATE, HOUR)]) == state


@pytest.mark.parametrize(
    ("asked_ms", "max_ms"), [(HOUR, HOUR), (99 * HOUR, 10 * HOUR), (0, 10 * HOUR), (-1, 10 * HOUR)]
)
def test_a_token_lives_no_longer_than_asked_for_or_allowed(asked_ms: int, max_ms: int) -> None:
    token = with_token(0, msgspec.structs.replace(CREATE, max_lifetime_ms=asked_ms)).tokens["id"]

    assert token.max_ms == max_ms
    assert token.expires_ms == min(max_ms, 2 * HOUR)


def test_only_users_renew() -> None:
    with pytest.raises(KafkaError) as error:
        with_token(0, msgspec.structs.replace(CREATE, renewers=(KafkaPrincipal("Group", "g"),)))

    assert refusal(error) is ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expires_ms"),
    [(-1, HOUR, 3 * HOUR), (HOUR, HOUR, 2 * HOUR), (99 * HOUR, HOUR, 3 * HOUR), (-1, 2 * HOUR, 4 * HOUR)],
)
@pytest.mark.parametrize("requester", [ALICE, EVE])
def test_owner_and_renewers_renew(period_ms: int, now_ms: int, expires_ms: int, requester: KafkaPrincipal) -> None:
    command = RenewDelegationToken(token_id="id", requester=requester, period_ms=period_ms)
    state = with_token()

    assert state.replay([renew_token(state, LIFETIMES, command, now_ms)]).tokens["id"].expires_ms == expires_ms


def test_a_token_is_not_renewed_beyond_its_life() -> None:
    state = with_token()
    for hour in range(1, 11):
        command = RenewDelegationToken(token_id="id", requester=ALICE)
        state = state.replay([renew_token(state, LIFETIMES, command, hour * HOUR)])

    assert state.tokens["id"].expires_ms == 10 * HOUR
    with pytest.raises(KafkaError) as error:
        renew_token(state, LIFETIMES, RenewDelegationToken(token_id="id", requester=ALICE), 10 * HOUR + 1)
    assert refusal(error) is ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize(
    ("token_id", "requester", "now_ms", "code"),
    [
        ("other", ALICE, 0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        ("id", BOB, 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("id", user("mallory"), 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("id", ALICE, 3 * HOUR, ErrorCode.DELEGATION_TOKEN_EXPIRED),
    ],
)
def test_nobody_else_renews_or_expires(token_id: str, requester: KafkaPrincipal, now_ms: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        renew_token(with_token(), LIFETIMES, RenewDelegationToken(token_id=token_id, requester=requester), now_ms)
    assert refusal(error) is code
    with pytest.raises(KafkaError) as error:
        expire_token(with_token(), ExpireDelegationToken(token_id=token_id, requester=requester, period_ms=1), now_ms)
    assert refusal(error) is code


def test_a_token_is_ended_at_once_or_later() -> None:
    state = with_token()
    later = expire_token(state, ExpireDelegationToken(token_id="id", requester=EVE, period_ms=HOUR), 5)
    assert isinstance(later, DelegationTokenChanged)
    assert later.token.expires_ms == HOUR + 5
    far = expire_token(state, ExpireDelegationToken(token_id="id", requester=EVE, period_ms=99 * HOUR), 5)
    assert isinstance(far, DelegationTokenChanged)
    assert far.token.expires_ms == 10 * HOUR
    # One that has expired already can still be taken away.
    at_once = expire_token(state, ExpireDelegationToken(token_id="id", requester=ALICE), 3 * HOUR)
    assert at_once == DelegationTokenRemoved(token_id="id")
    assert state.replay([at_once]) == EMPTY


def test_expired_tokens_are_removed() -> None:
    state = with_token()

    assert remove_expired(state, 2 * HOUR) == ()
    assert remove_expired(state, 2 * HOUR + 1) == (DelegationTokenRemoved(token_id="id"),)


RECORDS = st.lists(
    st.one_of(
        st.builds(AclCreated, acl=st.builds(acl, st.sampled_from("abc"))),
        st.builds(AclDeleted, acl=st.builds(acl, st.sampled_from("abc"))),
        st.builds(
            ScramCredentialChanged,
            user=st.sampled_from(["alice", "bob"]),
            mechanism=st.sampled_from([SHA_256, SHA_512]),
            credential=st.sampled_from([None, derive_credential(SHA_256, "x", b"s")]),
        ),
        st.builds(DelegationTokenRemoved, token_id=st.sampled_from(["id", "other"])),
        st.just(create_token(EMPTY, LIFETIMES, CREATE, 0)),
    ),
    max_size=30,
)


@given(RECORDS)
def test_a_snapshot_and_the_log_lead_to_the_same(records: list[SecurityRecord]) -> None:
    together = EMPTY.replay(through_the_log(records))
    one_by_one = EMPTY
    for record in records:
        one_by_one = one_by_one.replay([record])

    assert together == one_by_one
    assert EMPTY.replay(through_the_log(list(together.records()))) == together


def first_user(name: str, password: str = "secret", iterations: int = 4_096) -> MakeFirstUser:
    return MakeFirstUser(
        user=name,
        credentials=tuple(
            NewCredential(mechanism=each, credential=derive_credential(each, password, b"salt", iterations))
            for each in (SHA_512, SHA_256)
        ),
    )


def test_the_first_user_is_made_where_there_is_none_and_by_the_first_who_asks() -> None:
    state = EMPTY.replay(make_first_user(EMPTY, first_user("admin")))
    assert {name for _, name in state.scram_users} == {"admin"}
    for mechanism in (SHA_256, SHA_512):
        credential = state.scram_credential(mechanism, "admin")
        assert credential is not None
        assert check_password(mechanism, credential, "secret")

    assert make_first_user(state, first_user("admin", "another password")) == ()
    assert make_first_user(state, first_user("eve")) == ()


def test_the_first_user_does_not_come_back_while_anybody_is_there() -> None:
    state = EMPTY.replay(make_first_user(EMPTY, first_user("admin")))
    alice = SetScramCredential(user="alice", mechanism=SHA_256, credential=derive_credential(SHA_256, "x", b"salt"))
    state = state.replay(set_credential(state, alice))
    for mechanism in (SHA_256, SHA_512):
        state = state.replay(delete_credential(state, DeleteScramCredential(user="admin", mechanism=mechanism)))
    assert make_first_user(state, first_user("admin")) == ()

    state = state.replay(delete_credential(state, DeleteScramCredential(user="alice", mechanism=SHA_256)))
    assert len(make_first_user(state, first_user("admin"))) == 2


@pytest.mark.parametrize("command", [first_user(""), first_user("admin", iterations=4_095)])
def test_a_first_user_that_could_not_log_in_is_refused(command: MakeFirstUser) -> None:
    with pytest.raises(KafkaError):
        make_first_user(EMPTY, command)


def test_what_changes_nothing_is_the_same_state() -> None:
    state = with_token()

    assert state.replay([]) is state
    assert state.replay([DelegationTokenRemoved(token_id="other")]) is state


def test_commands_and_records_survive_their_way_and_show_no_secret() -> None:
    credential = derive_credential(SHA_512, "secret", b"salt")
    commands: list[SecurityCommand] = [
        CreateAcl(acl=acl()),
        DeleteAcls(filter=AclFilter(resource_name="x")),
        SetScramCredential(user="alice", mechanism=SHA_512, credential=credential),
        DeleteScramCredential(user="alice", mechanism=SHA_512),
        MakeFirstUser(user="alice", credentials=(NewCredential(mechanism=SHA_512, credential=credential),)),
        CREATE,
        RenewDelegationToken(token_id="id", requester=ALICE),
        ExpireDelegationToken(token_id="id", requester=ALICE),
    ]

    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(commands), type=list[SecurityCommand])
    assert decoded == commands
    record = ScramCredentialChanged(user="alice", mechanism=SHA_512, credential=credential)
    assert through_the_log([record]) == [record]
    assert repr(credential.stored_key) not in repr((commands, record))
    assert repr(EMPTY.replay([record])) == "SecurityState(0 ACLs, 1 credentials, 0 tokens)"
