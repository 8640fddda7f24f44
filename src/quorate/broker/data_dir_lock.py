"""One process per data directory: a second one is refused before it can touch anything."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from quorate.kernel.errors import QuorateError

logger = logging.getLogger(__name__)


@contextmanager
def lock_data_dir(path: str) -> Iterator[None]:
    """Hold the directory while the block runs. The operating system lets go when the process ends, however it ends."""
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        descriptor = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise QuorateError(f"the data directory {path} cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QuorateError(f"the data directory {path} is in use by another process") from None
        _warn_if_open(path)
        yield
    finally:
        os.close(descriptor)


def _warn_if_open(path: str) -> None:
    """A folder that was there keeps the mode that somebody has given it; but they should know."""
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        logger.warning("data folder is open to other users path=%s mode=%s wanted=0700", path, format(mode, "04o"))
