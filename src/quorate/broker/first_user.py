"""The first user of a cluster: made at its first start of what the node's file names, where there is no user yet.

Whoever has a login can make the other users; this is how the first one gets there. The password is in a file that its
owner alone can read, and leaves this module as keys that let nobody log in.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from quorate.kernel.decoding import convert
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import NodeId
from quorate.kernel.ports import OperatorFiles
from quorate.metadata.core.security_commands import MakeFirstUser, NewCredential
from quorate.metadata.store import MetadataStore
from quorate.security.scram_credentials import (
    SALT_SEED_BYTES,
    ScramMechanism,
    check_new_password,
    check_new_user_name,
    derive_credential,
    new_salt,
    scram_mechanism,
)

logger = logging.getLogger(__name__)

#: More is no password but another file.
_MAX_PASSWORD_BYTES: Final = 1_024
#: For SCRAM-SHA-512, and for clients that know the other one alone.
DEFAULT_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class FirstUser(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[first_user]`` of a node's file."""

    name: str
    #: Holds the password, for its owner alone.
    password_file: str
    mechanisms: tuple[str, ...] = DEFAULT_MECHANISMS

    def __post_init__(self) -> None:
        try:
            check_new_user_name(self.name)
        except QuorateError as error:
            raise QuorateError(f"[first_user] name: {error}") from None
        if not self.password_file:
            raise QuorateError("[first_user] password_file must name a file")
        if not self.mechanisms:
            raise QuorateError("[first_user] mechanisms names none")
        for name in self.mechanisms:
            if scram_mechanism(name) is None:
                raise QuorateError(f"[first_user] mechanisms: {name!r} is not one of {', '.join(DEFAULT_MECHANISMS)}")


_KEYS: Final = FirstUser.__struct_fields__


def parse_first_user(raw: Any) -> FirstUser | None:
    """The table as TOML has it; a mistake is one sentence, which shows no value: one may be a password."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise QuorateError('[first_user] is a table, with name = "admin" and password_file = "/path"')
    for key in raw:
        if key == "password":
            raise QuorateError("[first_user] a password is in a file of its own, which password_file names")
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            raise QuorateError(f"[first_user] unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    for key in ("name", "password_file"):
        if key not in raw:
            raise QuorateError(f"[first_user] the key {key!r} is missing")
    try:
        return convert(raw, FirstUser)
    except msgspec.ValidationError as error:
        raise QuorateError(f"[first_user] {error}") from None


def read_password(path: str, files: OperatorFiles) -> str:
    """What the file holds, without the end of its line. No error shows any of it. Blocks."""
    try:
        content = files.read_private(path).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise QuorateError(f"the password file {path} cannot be read: {error.strerror}") from None
    try:
        if len(content) > _MAX_PASSWORD_BYTES:
            raise QuorateError(f"it is longer than {_MAX_PASSWORD_BYTES} bytes, which is no password")
        password = content.decode()
        check_new_password(password)
    except UnicodeDecodeError:
        raise QuorateError(f"the password file {path} cannot be used: it is not UTF-8 text") from None
    except QuorateError as error:
        raise QuorateError(f"the password file {path} cannot be used: {error}") from None
    return password


class FirstUserMaking:
    """One start of a node: the file is read before the node takes part in anything, and used after that."""

    def __init__(
        self,
        node_id: NodeId,
        wanted: FirstUser | None,
        files: OperatorFiles,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._node_id = node_id
        self._wanted = wanted
        self._files = files
        self._loop = loop
        self._executor = executor
        self._random_bytes = random_bytes
        self._password = ""
        self._problem: QuorateError | None = None

    async def read(self, *, is_new_node: bool) -> None:
        """Raises ``QuorateError`` where a node that has never been in a cluster could not do its part.

        A cluster that works is not kept from its work by a file that it needed once.
        """
        if self._wanted is None:
            return
        path = self._wanted.password_file
        try:
            self._password = await self._loop.run_in_executor(self._executor, read_password, path, self._files)
        except QuorateError as error:
            if is_new_node:
                raise QuorateError(f"[first_user] {error}") from None
            self._problem = error

    async def make(self, metadata: MetadataStore) -> None:
        """Returns when the image has users, or nothing can be done about it. The password is forgotten."""
        wanted, password, self._password = self._wanted, self._password, ""
        if wanted is None or metadata.image.security.scram_users:
            return
        if self._problem is not None:
            logger.warning("first user not made node=%s user=%r error=%s", self._node_id, wanted.name, self._problem)
            return
        command = await self._loop.run_in_executor(
            self._executor, _command, wanted, password, self._random_bytes(SALT_SEED_BYTES * len(wanted.mechanisms))
        )
        while not metadata.image.security.scram_users:
            try:
                await metadata.submit_one(command)
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise QuorateError(f"the cluster refused the first user: {error}") from None
                logger.info("waiting for the quorum node=%s", self._node_id)
                continue
            break
        if _is_there(metadata, command):
            logger.info("first user made node=%s user=%r", self._node_id, wanted.name)


def _is_there(metadata: MetadataStore, command: MakeFirstUser) -> bool:
    """Another node may have been faster. Each has salts of its own."""
    security = metadata.image.security
    return all(security.scram_credential(new.mechanism, command.user) == new.credential for new in command.credentials)


def _command(wanted: FirstUser, password: str, seeds: bytes) -> MakeFirstUser:
    """Takes milliseconds."""
    mechanisms = [found for name in dict.fromkeys(wanted.mechanisms) if (found := scram_mechanism(name)) is not None]
    return MakeFirstUser(user=wanted.name, credentials=new_credentials(mechanisms, password, seeds))


def new_credentials(mechanisms: Sequence[ScramMechanism], password: str, seeds: bytes) -> tuple[NewCredential, ...]:
    """Each with a salt of its own, of ``SALT_SEED_BYTES`` random ones. Takes milliseconds."""
    return tuple(
        NewCredential(
            mechanism=mechanism,
            credential=derive_credential(
                mechanism, password, new_salt(seeds[number * SALT_SEED_BYTES : (number + 1) * SALT_SEED_BYTES])
            ),
        )
        for number, mechanism in enumerate(mechanisms)
    )
