"""A contender whose work is done by a process that nobody waits for, as Spark's workers are: CPU time and no more."""

import os
import signal
import time
from contextlib import suppress

from benchmarks.contenders.jobs import Copied, Job, serve_jobs

BURNT_S = 0.3


def burn(job: Job) -> Copied:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        began = time.process_time()
        while time.process_time() - began < BURNT_S:
            pass
        os._exit(0)
    with suppress(ChildProcessError):
        os.wait()  # It returns when the child is gone, without what the child took.
    return Copied(records=sum(job.end_offsets))


if __name__ == "__main__":
    serve_jobs(burn, Job)
