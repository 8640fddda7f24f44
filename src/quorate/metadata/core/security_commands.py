"""What a node may ask of the controller about security. None carries a password or a token's secret."""

import msgspec

from quorate.metadata.core.decisions import CarriedOut, DeletedAcls, GrantedToken, TaggedCommand, TokenExpiry
from quorate.security.acls import Acl, AclFilter
from quorate.security.principals import KafkaPrincipal
from quorate.security.scram_credentials import ScramCredential, ScramMechanism


class CreateAcl(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Sent again it changes nothing."""

    acl: Acl


class DeleteAcls(TaggedCommand[DeletedAcls], frozen=True, kw_only=True):
    """Sent again it finds none, and its answer names none."""

    filter: AclFilter


class SetScramCredential(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    user: str
    mechanism: ScramMechanism
    credential: ScramCredential


class DeleteScramCredential(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Sent again it is answered with RESOURCE_NOT_FOUND."""

    user: str
    mechanism: ScramMechanism


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    mechanism: ScramMechanism
    credential: ScramCredential


class MakeFirstUser(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Make this user where the cluster has no SCRAM user at all; otherwise it changes nothing.

    Each node of a cluster may send one: the first one counts.
    """

    user: str
    credentials: tuple[NewCredential, ...]


class CreateDelegationToken(TaggedCommand[GrantedToken], frozen=True, kw_only=True):
    """Sent again with the id of the first time it succeeds and changes nothing."""

    #: Chosen at random by the asker.
    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...] = ()
    #: 0 or less for as long as a token may live.
    max_lifetime_ms: int = -1


class RenewDelegationToken(TaggedCommand[TokenExpiry], frozen=True, kw_only=True):
    token_id: str
    requester: KafkaPrincipal
    #: 0 or less for the default.
    period_ms: int = -1


class ExpireDelegationToken(TaggedCommand[TokenExpiry], frozen=True, kw_only=True):
    """Sent again after it ended a token at once, it is answered with DELEGATION_TOKEN_NOT_FOUND."""

    token_id: str
    requester: KafkaPrincipal
    #: Less than 0 ends it at once.
    period_ms: int = -1


class RemoveExpiredTokens(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Now and then, so that the metadata does not keep what is of no use."""


SecurityCommand = (
    CreateAcl
    | DeleteAcls
    | SetScramCredential
    | DeleteScramCredential
    | MakeFirstUser
    | CreateDelegationToken
    | RenewDelegationToken
    | ExpireDelegationToken
    | RemoveExpiredTokens
)
