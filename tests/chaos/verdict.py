"""Whether a cluster is whole again, and whether what it has in the end is what was promised."""

from confluent_kafka.admin import AdminClient

from tests.chaos.load import PARTITION_COUNT, TOPIC, SharedHistory, read_everything
from tests.simulation.replication.history import HistoryBroken


def all_in_sync(admin: AdminClient) -> bool:
    partitions = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
    return all(
        len(partition.isrs) == len(partition.replicas) == 3 and partition.leader >= 0 for partition in partitions
    )


def check(shared: SharedHistory, bootstrap: str) -> None:
    if shared.broken is not None:
        raise shared.broken
    found = read_everything(bootstrap)
    for partition, log in found.items():
        shared.history.check_log(partition, log, "the topic")
        _check_order(partition, list(log.values()))
    missing = shared.placeless.difference(*(log.values() for log in found.values()))
    if missing:
        raise HistoryBroken(f"{sorted(missing)[:5]} were acknowledged and are nowhere")


def _check_order(partition: int, values: list[bytes]) -> None:
    """An idempotent producer's records stand in the order in which it sent them, none left out."""
    sent: dict[bytes, int] = {}
    for value in values:
        name, _, number = value.rpartition(b"-")
        if name.startswith(b"once"):
            expected = sent.get(name, partition - PARTITION_COUNT) + PARTITION_COUNT
            if int(number) != expected:
                raise HistoryBroken(f"partition {partition} has {value!r}, where {expected} comes next")
            sent[name] = int(number)
