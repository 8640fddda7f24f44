"""The contender kafka-backup, backing up. Its argument: the binary."""

import sys
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.contenders import kafka_backup
from benchmarks.contenders.jobs import Copied, Job, serve_jobs


class _Segment(msgspec.Struct):
    record_count: int


class _Partition(msgspec.Struct):
    segments: list[_Segment]


class _Topic(msgspec.Struct):
    partitions: list[_Partition]


class _Manifest(msgspec.Struct):
    topics: list[_Topic]


def back_up(binary: str, job: Job) -> Copied:
    source = {"bootstrap_servers": job.bootstrap.split(","), "topics": {"include": list(job.topics)}}
    settings = {
        "stop_at_current_offsets": True,
        "compression": job.backup_compression,
        "include_offset_headers": False,
        "max_concurrent_partitions": len(job.end_offsets),
    }
    kafka_backup.run(binary, "backup", job, {"source": source, "backup": settings})
    return Copied(records=count_records(Path(job.folder)))


def count_records(folder: Path) -> int:
    """As its manifest tells."""
    content = (folder / kafka_backup.BACKUP_ID / "manifest.json").read_bytes()
    manifest = msgspec.json.decode(content, type=_Manifest)
    return sum(
        segment.record_count
        for topic in manifest.topics
        for partition in topic.partitions
        for segment in partition.segments
    )


def main() -> None:
    (binary,) = sys.argv[1:]
    serve_jobs(partial(back_up, binary), Job)


if __name__ == "__main__":
    main()
