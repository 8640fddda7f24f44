"""Deciding changes of SCRAM users, and describing them: never more than mechanisms and iterations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.records import ScramCredentialChanged
from quorate.metadata.core.security_commands import DeleteScramCredential, MakeFirstUser, SetScramCredential
from quorate.metadata.core.security_state import SecurityState
from quorate.security.scram_credentials import ScramMechanism, check_iterations, credential_of

_MAX_SALT_BYTES: Final = 1_024


class ScramUpsertion(msgspec.Struct, frozen=True, kw_only=True):
    """As AlterUserScramCredentials has it. What it holds is as good as a password: it goes no further than here."""

    user: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, ...)"


ScramChange = SetScramCredential | DeleteScramCredential


def plan_changes(
    deletions: Iterable[DeleteScramCredential], upsertions: Iterable[ScramUpsertion]
) -> dict[str, ScramChange | KafkaError]:
    """One command for each user of a request, or what is wrong with it. A user may be changed once in a request."""
    plan: dict[str, ScramChange | KafkaError] = {}
    changes: list[DeleteScramCredential | ScramUpsertion] = [*deletions, *upsertions]
    for change in changes:
        before = plan.get(change.user)
        if before is None:
            plan[change.user] = _command_or_error(change)
        elif not isinstance(before, KafkaError):
            plan[change.user] = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
    return plan


def set_credential(state: SecurityState, command: SetScramCredential) -> tuple[ScramCredentialChanged, ...]:
    _check_name(command.user, command.mechanism)
    check_iterations(command.credential.iterations)
    if state.scram_credential(command.mechanism, command.user) == command.credential:
        return ()
    return (ScramCredentialChanged(user=command.user, mechanism=command.mechanism, credential=command.credential),)


def delete_credential(state: SecurityState, command: DeleteScramCredential) -> tuple[ScramCredentialChanged, ...]:
    _check_name(command.user, command.mechanism)
    if state.scram_credential(command.mechanism, command.user) is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return (ScramCredentialChanged(user=command.user, mechanism=command.mechanism, credential=None),)


def make_first_user(state: SecurityState, command: MakeFirstUser) -> tuple[ScramCredentialChanged, ...]:
    """One user is enough to make the others: any user that there is, whatever its name, is left as it is."""
    for new in command.credentials:
        _check_name(command.user, new.mechanism)
        check_iterations(new.credential.iterations)
    if state.scram_users:
        return ()
    return tuple(
        ScramCredentialChanged(user=command.user, mechanism=new.mechanism, credential=new.credential)
        for new in command.credentials
    )


def describe_users(
    state: SecurityState, users: Sequence[str] | None
) -> Mapping[str, dict[ScramMechanism, int] | KafkaError]:
    """The iterations of each user's mechanisms; of all users where none is named."""
    described: dict[str, dict[ScramMechanism, int] | KafkaError] = {}
    if not users:
        for (mechanism, user), credential in state.scram_users.items():
            found = described.setdefault(user, {})
            assert isinstance(found, dict)
            found[mechanism] = credential.iterations
        return described
    for user in users:
        if user in described:
            described[user] = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
            )
            continue
        found = {
            mechanism: kept.iterations
            for mechanism in ScramMechanism
            if (kept := state.scram_credential(mechanism, user)) is not None
        }
        described[user] = found or KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {user}"
        )
    return described


def _command_or_error(change: DeleteScramCredential | ScramUpsertion) -> ScramChange | KafkaError:
    try:
        _check_name(change.user, change.mechanism)
        return _upsertion(change) if isinstance(change, ScramUpsertion) else change
    except KafkaError as error:
        return error


def _upsertion(upsertion: ScramUpsertion) -> SetScramCredential:
    check_iterations(upsertion.iterations)
    if not 0 < len(upsertion.salt) <= _MAX_SALT_BYTES or not upsertion.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt or the salted password is empty or too long")
    return SetScramCredential(
        user=upsertion.user,
        mechanism=upsertion.mechanism,
        credential=credential_of(upsertion.mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations),
    )


def _check_name(user: str, mechanism: ScramMechanism) -> None:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is ScramMechanism.UNKNOWN:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
