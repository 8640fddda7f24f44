"""One process per data directory: a second one is refused before it can touch anything."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from quorate.kernel.errors import QuorateError


@contextmanager
def lock_data_dir(path: str) -> Iterator[None]:
    """Hold the directory while the block runs. The operating system lets go when the process ends, however it ends."""
    try:
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise QuorateError(f"the data directory {path} cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QuorateError(f"the data directory {path} is in use by another process") from None
        yield
    finally:
        os.close(descriptor)
