"""What the nodes of a cluster show to each other, each in files of its own, and how all of it is replaced in steps."""

import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.peers.node_certificates import NodeAuthority, put

_NAME = "nodes"


class Credentials:
    """A secret, and certificates where there are any."""

    def __init__(self, folder: Path, *, has_certificates: bool) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._secrets = [_new_secret()]
        self._authorities = [NodeAuthority(_NAME)] if has_certificates else []
        #: Of these, the one that issues.
        self._issuer = 0
        self._node_ids: list[int] = []

    @property
    def has_certificates(self) -> bool:
        return bool(self._authorities)

    def keys(self, node_id: int) -> dict[str, str]:
        """Of the node's node.toml. With its first mention it gets the files."""
        with self._lock:
            if node_id not in self._node_ids:
                self._node_ids.append(node_id)
                self._put_secrets(node_id)
                if self.has_certificates:
                    self._put_certificate(node_id)
                    self._put_authorities(node_id)
        keys = {"cluster_secret_file": self._path(node_id, "secret")}
        if self.has_certificates:
            keys |= {"peer_certificate_file": self._path(node_id, "pem"), "peer_ca_file": self._path(node_id, "ca.pem")}
        return {key: str(path) for key, path in keys.items()}

    def steps(self, random: Random, pause: Callable[[], None]) -> Iterator[str]:
        """Of one replacement of everything; after each, all nodes have to know of it before the next."""
        yield from self._secret_steps(random, pause)
        if self.has_certificates:
            yield from self._authority_steps(random, pause)

    def _secret_steps(self, random: Random, pause: Callable[[], None]) -> Iterator[str]:
        (old,), new = self._secrets, _new_secret()
        for content in ([old, new], [new, old], [new]):
            with self._lock:
                self._secrets = content
            self._at_all(self._put_secrets, random, pause)
            yield f"{len(content)} secrets"

    def _authority_steps(self, random: Random, pause: Callable[[], None]) -> Iterator[str]:
        (old,), new = self._authorities, NodeAuthority(_NAME)
        with self._lock:
            self._authorities = [old, new]
        self._at_all(self._put_authorities, random, pause)
        yield "2 authorities"
        with self._lock:
            self._issuer = 1
        self._at_all(self._put_certificate, random, pause)
        yield "new certificates"
        with self._lock:
            self._authorities, self._issuer = [new], 0
        self._at_all(self._put_authorities, random, pause)
        yield "1 authorities"

    def _at_all(self, put_at: Callable[[int], None], random: Random, pause: Callable[[], None]) -> None:
        with self._lock:
            node_ids = random.sample(self._node_ids, len(self._node_ids))
        for node_id in node_ids:
            with self._lock:
                put_at(node_id)
            pause()

    def _put_secrets(self, node_id: int) -> None:
        put(self._path(node_id, "secret"), "\n".join(self._secrets).encode())

    def _put_certificate(self, node_id: int) -> None:
        put(self._path(node_id, "pem"), self._authorities[self._issuer].issue(node_id))

    def _put_authorities(self, node_id: int) -> None:
        put(self._path(node_id, "ca.pem"), b"".join(each.certificate for each in self._authorities))

    def _path(self, node_id: int, kind: str) -> Path:
        return self._folder / f"node-{node_id}.{kind}"


def _new_secret() -> str:
    return secrets.token_hex(32)
