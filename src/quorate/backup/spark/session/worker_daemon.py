"""The process that Spark forks its Python workers from, on a local master. Runs instead of ``pyspark.daemon``.

Three things make it quick. It imports pyspark from its folder, where the byte code is kept, and not from
``pyspark.zip``, which Spark puts first on the path and which holds none. It freezes what it has loaded: a worker
collects garbage after every task, which then no longer walks over all modules. And memory for large pieces of data
stays with the process when they are done: the next piece would otherwise pay for fresh pages.
"""

import ctypes
import gc
import importlib.util
import os
import sys
from contextlib import suppress

# As <malloc.h> of the GNU C library numbers them.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 64 * 1024 * 1024
_LARGEST_PIECE_BYTES = 32 * 1024 * 1024


def prefer_unzipped_pyspark() -> None:
    """Take ``pyspark.zip`` off the path where pyspark is also installed as a folder."""
    without_zip = [entry for entry in sys.path if os.path.basename(entry) != "pyspark.zip"]
    with_zip, sys.path[:] = list(sys.path), without_zip
    if importlib.util.find_spec("pyspark") is None:
        sys.path[:] = with_zip


def load_what_tasks_need() -> None:
    """Loaded once here, shared by all workers. Not pyarrow and obstore: they start threads, which a fork would lose."""
    import pyspark.worker  # noqa: F401


def keep_freed_memory() -> None:
    """Other C libraries have no such setting and do without."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_PIECE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def main() -> None:
    prefer_unzipped_pyspark()
    load_what_tasks_need()
    keep_freed_memory()
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
