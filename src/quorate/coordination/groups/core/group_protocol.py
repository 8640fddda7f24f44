"""One assignment protocol that a classic member supports."""

import msgspec


class GroupProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """Its name, and the member's metadata for it (for consumers: the subscription)."""

    name: str
    metadata: bytes
