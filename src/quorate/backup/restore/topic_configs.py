"""Which configs a restored topic has while its data comes in, and which afterwards.

Old data must not be deleted or compacted before it is complete, its times must not be refused or replaced, and its
bytes must stay as they are. So these configs wait until the data is in, and are then set as at the source.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from quorate.kernel.ids import ProducerId
from quorate.metadata.core.topic_configs import RESTORE_PRODUCER_ID

_WITHOUT_LIMIT: Final = str(2**63 - 1)
_WHILE_RESTORING: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
    "message.timestamp.before.max.ms": _WITHOUT_LIMIT,
    "message.timestamp.after.max.ms": _WITHOUT_LIMIT,
}
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
#: They name brokers and producers of the source.
_NOT_RESTORED: Final = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas", RESTORE_PRODUCER_ID}
)


class TopicConfigUpdate(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, str]
    delete: list[str]


def final_configs(source: Mapping[str, str], overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The topic's configs when all is done."""
    merged: dict[str, str | None] = {**source, **overrides}
    return {key: value for key, value in merged.items() if value is not None and key not in _NOT_RESTORED}


def configs_while_restoring(
    final: Mapping[str, str], log_append_time: Literal["original", "new"], keeps_offsets_of: ProducerId | None = None
) -> dict[str, str]:
    """With a producer's id for a topic whose records keep their offsets: until it is done nobody else may write."""
    configs = {**final, **_suspended(log_append_time)}
    return configs if keeps_offsets_of is None else {**configs, RESTORE_PRODUCER_ID: str(keeps_offsets_of)}


def change_when_restored(
    final: Mapping[str, str], log_append_time: Literal["original", "new"], *, keeps_offsets: bool = False
) -> TopicConfigUpdate:
    """From the configs while restoring to the final ones."""
    suspended = _suspended(log_append_time)
    delete = [key for key in suspended if key not in final]
    return TopicConfigUpdate(
        values={key: final[key] for key in suspended if key in final},
        delete=[*delete, RESTORE_PRODUCER_ID] if keeps_offsets else delete,
    )


def _suspended(log_append_time: Literal["original", "new"]) -> dict[str, str]:
    if log_append_time == "new":
        return dict(_WHILE_RESTORING)
    return {**_WHILE_RESTORING, _TIMESTAMP_TYPE: "CreateTime"}
