"""The metadata records about security: who may do what, and what is kept of passwords and tokens.

No record has a password or a token's secret. Credentials are what a login is checked against.
"""

from quorate.metadata.core.records import MetadataRecord
from quorate.security.acls import Acl
from quorate.security.delegation_token import DelegationToken
from quorate.security.scram_credentials import ScramCredential, ScramMechanism


class AclCreated(MetadataRecord, frozen=True, kw_only=True, tag="acl-created"):
    acl: Acl


class AclDeleted(MetadataRecord, frozen=True, kw_only=True, tag="acl-deleted"):
    acl: Acl


class ScramCredentialChanged(MetadataRecord, frozen=True, kw_only=True, tag="scram-credential-changed"):
    """The whole new credential of a user for a mechanism; None takes it away."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


class DelegationTokenChanged(MetadataRecord, frozen=True, kw_only=True, tag="delegation-token-changed"):
    """A new token, or the whole new state of one."""

    token: DelegationToken


class DelegationTokenRemoved(MetadataRecord, frozen=True, kw_only=True, tag="delegation-token-removed"):
    token_id: str


SecurityRecord = AclCreated | AclDeleted | ScramCredentialChanged | DelegationTokenChanged | DelegationTokenRemoved
