"""A file of the quorum that is not as it was written."""

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    problem: str
    #: Made good from what else this node has. Otherwise the rest of the cluster has to give it back.
    is_repaired: bool
    #: A power cut may have left the file like this.
    may_be_torn: bool = False
