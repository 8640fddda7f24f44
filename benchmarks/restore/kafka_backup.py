"""The contender kafka-backup, restoring a backup that it has made. Its argument: the binary."""

import sys
from functools import partial

from benchmarks.contenders import kafka_backup
from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.restore.restore_job import RestoreJob


def restore(binary: str, job: RestoreJob) -> Copied:
    target = {"bootstrap_servers": job.bootstrap.split(","), "topics": {"include": list(job.topics)}}
    settings = {
        "topic_mapping": dict(zip(job.topics, job.target_topics, strict=True)),
        "max_concurrent_partitions": len(job.end_offsets),
    }
    kafka_backup.run(binary, "restore", job, {"target": target, "restore": settings})
    return Copied(records=job.records)


def main() -> None:
    (binary,) = sys.argv[1:]
    serve_jobs(partial(restore, binary), RestoreJob)


if __name__ == "__main__":
    main()
