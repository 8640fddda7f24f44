"""What this node shows to others, and asks of them: read at the start, and again when the files have changed.

A file that is being replaced may be seen half written. So what is new counts once two looks in a row have found it, and
what cannot be used is told once and leaves everything as it was. That the node's certificate ends is told in time: open
connections outlive it, starts do not.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_bytes
from typing import Final

import msgspec

from quorate.broker.config import NodeConfig
from quorate.kernel.conditions import Condition, Conditions
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.kernel.ports import Clock, OperatorFiles
from quorate.kernel.tasks import FailureHandler, TaskScope
from quorate.security.peer_handshake import NONCE_BYTES, ClusterSecrets, new_secret, parse_secrets
from quorate.security.peer_tls import AUTHORITY_KEY, CERTIFICATE_KEY, PeerCredentials, PeerTls, Validity

logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S: Final = 1.0
#: Far more than any file of an operator has.
_MAX_FILE_BYTES: Final = 1 << 20
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SECRET_KEY: Final = "cluster_secret_file"
#: What the secret is called where nobody has said where it is to be.
SECRET_FILE_NAME: Final = "cluster.secret"
EXPIRY_CONDITION: Final = "peer-certificate-expires"
#: Before a certificate ends: this part of the time that it is valid for, and no more than so long.
_TOLD_PART: Final = 0.1
_TOLD_LONGEST_S: Final = 30 * 86_400


def make_secret_file(path: Path) -> None:
    """With a new secret, for its owner alone. One that is there is kept."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    with open(descriptor, "w") as file:
        file.write(new_secret(token_bytes(NONCE_BYTES)) + "\n")


class OsOperatorFiles:
    """Those of this machine."""

    def read(self, path: str) -> bytes:
        with Path(path).open("rb") as file:
            return file.read(_MAX_FILE_BYTES)

    def read_private(self, path: str) -> bytes:
        with Path(path).open("rb") as file:
            found = os.fstat(file.fileno())
            # Who mounts secrets into containers can give them to root and one group only.
            allowed = stat.S_IRGRP if found.st_uid == 0 else 0
            if stat.S_IMODE(found.st_mode) & _OTHERS & ~allowed:
                raise QuorateError(f"{path} can be read or changed by others than its owner: chmod 600 {path}")
            return file.read(_MAX_FILE_BYTES)


class _Texts(msgspec.Struct, frozen=True):
    """The content of all files at one moment. Shown without it."""

    secrets: bytes | None
    certificate: bytes | None
    authorities: bytes | None

    def __repr__(self) -> str:
        return "_Texts(...)"


class CredentialFiles:
    """The files that a node's settings name."""

    def __init__(self, config: NodeConfig, files: OperatorFiles) -> None:
        self._node_id = config.node_id
        self._secret_file = self._certificate_file = self._authority_file = None
        if config.peer_listen is not None:
            self._secret_file = config.cluster_secret_file
            self._certificate_file = config.peer_certificate_file
            self._authority_file = config.peer_ca_file
        self._files = files

    @property
    def is_none(self) -> bool:
        return self._secret_file is None and self._certificate_file is None

    def load(self) -> tuple[_Texts, PeerCredentials]:
        """Raises ``QuorateError`` where they cannot be used. Blocks."""
        texts = self.read()
        return texts, self.make(texts)

    def read(self) -> _Texts:
        files = self._files
        return _Texts(
            secrets=_read(_SECRET_KEY, self._secret_file, files.read_private),
            certificate=_read(CERTIFICATE_KEY, self._certificate_file, files.read_private),
            authorities=_read(AUTHORITY_KEY, self._authority_file, files.read),
        )

    def make(self, texts: _Texts) -> PeerCredentials:
        tls = None
        if texts.certificate is not None and texts.authorities is not None:
            tls = PeerTls(texts.certificate, texts.authorities, self._node_id)
        secrets = None if texts.secrets is None else _parse_secret(self._secret_file, texts.secrets)
        return PeerCredentials(secrets=secrets, tls=tls)


def read_secret_file(path: str) -> ClusterSecrets:
    return _parse_secret(path, _read(_SECRET_KEY, path, OsOperatorFiles().read_private) or b"")


def check_certificate_files(certificate: str, authorities: str, node_id: NodeId) -> None:
    """Whether the node could start with them."""
    files = OsOperatorFiles()
    own = _read(CERTIFICATE_KEY, certificate, files.read_private) or b""
    PeerTls(own, _read(AUTHORITY_KEY, authorities, files.read) or b"", node_id)


def _read(key: str, path: str | None, read: Callable[[str], bytes]) -> bytes | None:
    if path is None:
        return None
    try:
        return read(path)
    except OSError as error:
        raise QuorateError(f"{key}: {path} cannot be read: {error.strerror}") from None
    except QuorateError as error:
        raise QuorateError(f"{key}: {error}") from None


def _parse_secret(path: str | None, content: bytes) -> ClusterSecrets:
    try:
        return parse_secrets(content.decode("ascii", "replace"))
    except QuorateError as error:
        raise QuorateError(f"{_SECRET_KEY}: {path}: {error}") from None


class CredentialWatch:
    """Looks at the files once in a while, and hands out what is new."""

    def __init__(
        self,
        node_id: NodeId,
        files: CredentialFiles,
        in_force: _Texts,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_change: Callable[[PeerCredentials], None],
        on_failure: FailureHandler,
        on_look: Callable[[], None] | None = None,
    ) -> None:
        self._node_id = node_id
        self._files = files
        self._seen = self._tried = in_force
        self._loop = loop
        self._executor = executor
        self._on_change = on_change
        self._on_look = on_look
        self._told = ""
        self._tasks = TaskScope(loop, on_failure)

    def start(self) -> None:
        if not self._files.is_none:
            self._tasks.spawn(self._watch())

    async def stop(self) -> None:
        await self._tasks.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            if self._on_look is not None:
                self._on_look()
            try:
                await self._look(await self._loop.run_in_executor(self._executor, self._files.read))
            except QuorateError as error:
                self._tell(str(error))

    async def _look(self, texts: _Texts) -> None:
        has_settled = texts == self._seen
        self._seen = texts
        if not has_settled or texts == self._tried:
            return
        self._tried = texts
        self._on_change(await self._loop.run_in_executor(self._executor, self._files.make, texts))
        self._told = ""
        logger.info("peer credentials changed node=%s", self._node_id)

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            logger.error("peer credentials not changed node=%s error=%s", self._node_id, problem)


class CertificateExpiry:
    def __init__(
        self, node_id: NodeId, in_force: Callable[[], PeerTls | None], conditions: Conditions, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._in_force = in_force
        self._conditions = conditions
        self._clock = clock

    def look(self) -> None:
        tls = self._in_force()
        if tls is None:
            return
        if not is_due(tls.validity, self._clock.now_ms() / 1000):
            self._conditions.clear(EXPIRY_CONDITION)
            return
        ends = datetime.fromtimestamp(tls.validity.until_s, UTC).isoformat()
        sentence = (
            f"the certificate in peer_certificate_file ends at {ends}: after that the node cannot connect to others, "
            f"nor start; put a new one in its place, which counts without a restart"
        )
        if self._conditions.set(Condition(kind=EXPIRY_CONDITION, sentence=sentence)):
            logger.warning("peer certificate expires node=%s at=%s", self._node_id, ends)


def is_due(validity: Validity, now_s: float) -> bool:
    before_s = min((validity.until_s - validity.from_s) * _TOLD_PART, _TOLD_LONGEST_S)
    return now_s >= validity.until_s - before_s
