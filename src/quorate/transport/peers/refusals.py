"""Which refusals between peers are logged: once each, and not too many at once.

A node that is turned away comes back every second, and whoever can connect can make up names.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable

from quorate.transport.peers.config import PeerIdentity
from quorate.transport.peers.hello import Rejection

logger = logging.getLogger(__name__)

#: The latest; what is said in older ones would be logged again.
_MAX_REMEMBERED = 1000
_MAX_LINES = 20
_PER_S = 60.0
#: Of what a peer has said, this much is logged.
_QUOTED_CHARS = 500


class RefusalLog:
    def __init__(self, identity: PeerIdentity, now_s: Callable[[], float]) -> None:
        self._identity = identity
        self._now_s = now_s
        self._logged: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._interval_began_s = now_s()
        self._lines = 0
        self._left_out = 0

    def note(self, peer: str, rejection: Rejection) -> None:
        key = (peer, rejection.reason)
        if key in self._logged:
            self._logged.move_to_end(key)
            return
        if not self._may_log():
            self._left_out += 1
            return
        self._logged[key] = None
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.popitem(last=False)
        logger.warning(
            "peer refused node=%s cluster=%s peer=%s reason=%r message=%r left_out=%s",
            self._identity.node_id,
            self._identity.cluster_id,
            peer,
            rejection.reason[:_QUOTED_CHARS],
            rejection.message[:_QUOTED_CHARS],
            self._left_out,
        )
        self._left_out = 0

    def forget(self, peer: str) -> None:
        """The peer is fine now: a later refusal is news again."""
        for key in [key for key in self._logged if key[0] == peer]:
            del self._logged[key]

    def _may_log(self) -> bool:
        now_s = self._now_s()
        if now_s - self._interval_began_s >= _PER_S:
            self._interval_began_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= _MAX_LINES
