"""Which refusals between peers were already logged: a node that is turned away comes back every second."""

import logging

from quorate.transport.peer_hello import Rejection

logger = logging.getLogger(__name__)

#: Whoever can connect can make up names; what is remembered of them stays bounded.
_MAX_REMEMBERED = 1000


class RefusalLog:
    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._logged: set[tuple[str, str]] = set()

    def note(self, peer: str, rejection: Rejection) -> None:
        key = (peer, rejection.reason)
        if key in self._logged or len(self._logged) >= _MAX_REMEMBERED:
            return
        self._logged.add(key)
        logger.warning(
            "peer refused node=%s peer=%s reason=%s message=%r",
            self._node_id,
            peer,
            rejection.reason,
            rejection.message,
        )

    def forget(self, peer: str) -> None:
        """The peer is fine now: a later refusal is news again."""
        self._logged = {key for key in self._logged if key[0] != peer}
