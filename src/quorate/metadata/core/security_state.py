"""The part of the metadata image that is about security: ACLs, SCRAM users and delegation tokens. It never changes.

A replay makes the next one, which shares whatever the records did not touch.
"""

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

import msgspec

from quorate.metadata.core.records import (
    AclCreated,
    AclDeleted,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
    SecurityRecord,
)
from quorate.security.acl_index import AclIndex
from quorate.security.acls import Acl
from quorate.security.decoys import ShapeCounts, changed_counts, preferred_mechanism, shapes_of
from quorate.security.delegation_token import DelegationToken
from quorate.security.persistent_map import PersistentMap
from quorate.security.scram_credentials import ScramCredential, ScramMechanism

ScramUserMap = PersistentMap[tuple[ScramMechanism, str], ScramCredential]
_MECHANISMS: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


class SecurityState(msgspec.Struct, frozen=True, kw_only=True):
    acls: AclIndex = msgspec.field(default_factory=AclIndex)
    scram_users: ScramUserMap = msgspec.field(default_factory=PersistentMap)
    tokens: PersistentMap[str, DelegationToken] = msgspec.field(default_factory=PersistentMap)
    #: Of the credentials: what unknown users seem to have is drawn from it.
    shapes: ShapeCounts = {}

    def __repr__(self) -> str:
        return f"SecurityState({len(self.acls)} ACLs, {len(self.scram_users)} credentials, {len(self.tokens)} tokens)"

    def scram_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.scram_users.get((mechanism, user))

    def any_scram_credential(self, user: str) -> tuple[ScramMechanism, ScramCredential] | None:
        """For PLAIN, which has the password itself: any credential will do to check it."""
        found = _credentials_of(self.scram_users, user)
        preferred = preferred_mechanism(found)
        return None if preferred is None else (preferred, found[preferred])

    def replay(self, records: Iterable[SecurityRecord]) -> "SecurityState":
        draft = SecurityDraft(self)
        for record in records:
            draft.apply(record)
        return draft.finish()

    def records(self) -> Iterator[SecurityRecord]:
        """Those that add up to it, for a snapshot."""
        for acl in self.acls:
            yield AclCreated(acl=acl)
        for (mechanism, user), credential in self.scram_users.items():
            yield ScramCredentialChanged(user=user, mechanism=mechanism, credential=credential)
        for token in self.tokens.values():
            yield DelegationTokenChanged(token=token)


class SecurityDraft:
    """Records are applied to it one by one; ACLs are gathered, as many together cost less than each by itself."""

    def __init__(self, base: SecurityState) -> None:
        self._base = base
        self._acls: dict[Acl, bool] = {}
        self._scram_users = base.scram_users
        self._shapes = base.shapes
        self._tokens = base.tokens

    def apply(self, record: SecurityRecord) -> None:
        match record:
            case AclCreated(acl=acl):
                self._acls[acl] = True
            case AclDeleted(acl=acl):
                self._acls[acl] = False
            case ScramCredentialChanged(user=user, mechanism=mechanism, credential=None):
                self._replace(user, self._scram_users.without((mechanism, user)))
            case ScramCredentialChanged(user=user, mechanism=mechanism, credential=credential):
                assert credential is not None
                self._replace(user, self._scram_users.with_entry((mechanism, user), credential))
            case DelegationTokenChanged(token=token):
                self._tokens = self._tokens.with_entry(token.token_id, token)
            case DelegationTokenRemoved(token_id=token_id):
                self._tokens = self._tokens.without(token_id)
            case _:
                assert_never(record)

    def _replace(self, user: str, users: ScramUserMap) -> None:
        before, after = (shapes_of(_credentials_of(each, user)) for each in (self._scram_users, users))
        self._shapes = changed_counts(self._shapes, before, after)
        self._scram_users = users

    def finish(self) -> SecurityState:
        acls = self._base.acls.changed(self._acls) if self._acls else self._base.acls
        if (
            acls is self._base.acls
            and self._scram_users is self._base.scram_users
            and self._tokens is self._base.tokens
        ):
            return self._base
        return SecurityState(acls=acls, scram_users=self._scram_users, tokens=self._tokens, shapes=self._shapes)


def _credentials_of(users: ScramUserMap, user: str) -> dict[ScramMechanism, ScramCredential]:
    found = {mechanism: users.get((mechanism, user)) for mechanism in _MECHANISMS}
    return {mechanism: credential for mechanism, credential in found.items() if credential is not None}
