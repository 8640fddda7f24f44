"""The process that Spark forks its Python workers from, on a local master. Runs instead of ``pyspark.daemon``.

Two things make it quick. It imports pyspark from its folder, where the byte code is kept, and not from ``pyspark.zip``,
which Spark puts first on the path and which holds none. And it freezes what it has loaded: a worker collects garbage
after every task, which then no longer walks over all modules.
"""

import gc
import importlib.util
import os
import sys


def prefer_unzipped_pyspark() -> None:
    """Take ``pyspark.zip`` off the path where pyspark is also installed as a folder."""
    without_zip = [entry for entry in sys.path if os.path.basename(entry) != "pyspark.zip"]
    with_zip, sys.path[:] = list(sys.path), without_zip
    if importlib.util.find_spec("pyspark") is None:
        sys.path[:] = with_zip


def load_what_tasks_need() -> None:
    """Loaded once here, shared by all workers. Not pyarrow and obstore: they start threads, which a fork would lose."""
    import pyspark.worker  # noqa: F401

    import quorate.backup.segment_verification
    import quorate.pipeline.copy_task
    import quorate.pipeline.data_source.source  # noqa: F401


def main() -> None:
    prefer_unzipped_pyspark()
    load_what_tasks_need()
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
