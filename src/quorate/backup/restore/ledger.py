"""What is kept of each restore, beside the backup: its plan, the topics that it made, its offset map. Does I/O.

Objects are only ever put where there is none, each sealed by its SHA-256. The plan is the commitment: of two commands
that begin the same restore one has its plan stored, and both follow that one. Nothing is written to the target before
the ids of its topics are stored, so a topic that is there without them was not filled by this restore.
"""

import contextlib
import hashlib
import re
from collections.abc import Collection
from typing import TypeVar

import msgspec
from cramjam import zstd

from quorate.backup.errors import BackupError, ObjectExists, ObjectNotFound
from quorate.backup.manifests.manifest import GroupOffset
from quorate.backup.objects.names import topic_label
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.objects.stored_documents import (
    Count,
    DamagedDocument,
    DocumentFault,
    MomentMs,
    decode_packed,
    decode_sealed,
    encode_sealed,
)
from quorate.backup.restore.claims import take_run_number
from quorate.backup.restore.config import RestoreConfig
from quorate.backup.restore.offset_map import OffsetMap
from quorate.backup.restore.plan import RestorePlan, check_plan
from quorate.kernel.ids import TopicId, TopicName
from quorate.records.batch import Compression
from quorate.records.compression import decompress
from quorate.records.errors import CorruptBatch

_PLAN = re.compile(r"([0-9a-f]{1,64})-([1-9]\d{0,8})/plan\.json")
_MAP = re.compile(r"[^/]+/offset-map-[^/]+/[^/]+\.msgpack\.zst")
_MAX_MAP_BYTES = 512 * 1024 * 1024
_DIGEST_BYTES = 32
_SNAPSHOT = re.compile(r"[^/]+/groups-before/[0-9a-f]{64}\.json")
_DIGEST_LENGTH = 12

Stored = TypeVar("Stored", bound=msgspec.Struct)


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A group's offsets at the target before a restore committed its own."""

    group: str
    offsets: list[GroupOffset]


class RestoreDone(msgspec.Struct, frozen=True, kw_only=True):
    finished_ms: MomentMs
    record_count: Count


class TopicIds(msgspec.Struct, frozen=True, kw_only=True):
    """Of the topics that a restore made."""

    topic_ids: dict[TopicName, TopicId]


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """It is there, and that is all it says."""

    what: str


def restores_location(config: RestoreConfig) -> StorageLocation:
    return restores_below(config.root, config.backup_id)


def restores_below(root: StorageLocation, backup_id: str) -> StorageLocation:
    """Beside the backup's folder, in which later runs delete what no manifest names. No backup's id has a tilde."""
    return root.below(f"{backup_id}~restores")


def settings_digest(config: RestoreConfig, target_cluster_id: str) -> str:
    """The same for all runs of one restore: those that ask for the same of the same cluster."""
    asked = msgspec.structs.replace(
        config.restore, rate_limit_bytes_per_second=None, deadline_ms=1, consumer_groups=None
    )
    content = msgspec.json.encode([config.backup_id, target_cluster_id, asked], order="sorted")
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]


class RestoreLedger:
    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def ids(self) -> list[str]:
        """Every restore that has a plan."""
        found = (_PLAN.fullmatch(each.name) for each in self._storage.objects())
        return sorted((match[1] + "-" + match[2] for match in found if match), key=_number)

    def latest(self, digest: str) -> str | None:
        own = [restore_id for restore_id in self.ids() if restore_id.startswith(f"{digest}-")]
        return own[-1] if own else None

    @staticmethod
    def id_after(latest: str | None, digest: str) -> str:
        """The id of the restore that begins because ``latest`` cannot be continued.

        Not the next one that is free when the plan is stored: another command may have taken that meanwhile, and both
        would write the same topics, each as a restore of its own.
        """
        return f"{digest}-{1 if latest is None else _number(latest) + 1}"

    def put_plan(self, restore_id: str, plan: RestorePlan) -> RestorePlan:
        """Store the plan; returns the one that counts, since another command may have been faster."""
        return self._put_once(f"{restore_id}/plan.json", plan, RestorePlan)

    def plan(self, restore_id: str) -> RestorePlan:
        name = f"{restore_id}/plan.json"
        found = self._read(name, RestorePlan)
        if found is None:
            raise BackupError(f"there is no restore {restore_id} in {self._storage.location.url}")
        try:
            check_plan(found)
        except DocumentFault as fault:
            raise self._damaged(name, fault) from None
        return found

    def put_topic_ids(self, restore_id: str, topic_ids: dict[TopicName, TopicId]) -> dict[TopicName, TopicId]:
        return self._put_once(f"{restore_id}/topics.json", TopicIds(topic_ids=topic_ids), TopicIds).topic_ids

    def topic_ids(self, restore_id: str) -> dict[TopicName, TopicId] | None:
        found = self._read(f"{restore_id}/topics.json", TopicIds)
        return None if found is None else found.topic_ids

    def next_run_number(self, restore_id: str) -> int:
        return take_run_number(self._storage, restore_id)

    def put_written(self, restore_id: str) -> None:
        """Every record is in the target. From now on its users may write there, and retention may delete."""
        self._put_once(f"{restore_id}/written.json", Happened(what="written"), Happened)

    def is_written(self, restore_id: str) -> bool:
        return self._read(f"{restore_id}/written.json", Happened) is not None

    def put_done(self, restore_id: str, done: RestoreDone) -> None:
        self._put_once(f"{restore_id}/done.json", done, RestoreDone)

    def done(self, restore_id: str) -> RestoreDone | None:
        return self._read(f"{restore_id}/done.json", RestoreDone)

    def put_abandoned(self, restore_id: str) -> None:
        """The restore has a plan and will never follow it: its manifest is not to be kept for it."""
        self._put_once(f"{restore_id}/abandoned.json", Happened(what="abandoned"), Happened)

    def is_abandoned(self, restore_id: str) -> bool:
        return self._read(f"{restore_id}/abandoned.json", Happened) is not None

    def unfinished(self, ignored: Collection[str] = ()) -> dict[str, int]:
        """The manifest of every restore that a later run may continue: only the last one of each digest.

        Nothing is read of those that are to be ``ignored``: they may be damaged.
        """
        last = {restore_id.rpartition("-")[0]: restore_id for restore_id in self.ids()}
        return {
            restore_id: self.plan(restore_id).manifest_number
            for restore_id in last.values()
            if restore_id not in ignored and self.done(restore_id) is None and not self.is_abandoned(restore_id)
        }

    def damages(self) -> dict[str, str]:
        """What is wrong with which object, of all restores."""
        found: dict[str, str] = {}
        for each in list(self._storage.objects()):
            restore_id, _, name = each.name.partition("/")
            try:
                if _PLAN.fullmatch(each.name):
                    self.plan(restore_id)
                elif _MAP.fullmatch(each.name):
                    self._read_map(each.name)
                elif _SNAPSHOT.fullmatch(each.name):
                    self._read(each.name, GroupSnapshot)
                elif name in _KINDS:
                    self._read(each.name, _KINDS[name])
            except ObjectNotFound:
                continue
            except DamagedDocument as error:
                found[each.name] = str(error)
        return found

    def put_group_snapshot(self, restore_id: str, snapshot: GroupSnapshot) -> None:
        """Taken once, before the first commit: a later one would hold what the restore itself committed."""
        name = hashlib.sha256(snapshot.group.encode()).hexdigest()
        self._put_once(f"{restore_id}/groups-before/{name}.json", snapshot, GroupSnapshot)

    def group_snapshots(self, restore_id: str) -> list[GroupSnapshot]:
        names = [each.name for each in self._storage.objects(f"{restore_id}/groups-before/")]
        # A process that was killed may have left half of one, under another name.
        found = [self._read(name, GroupSnapshot) for name in names if _SNAPSHOT.fullmatch(name)]
        return sorted((each for each in found if each is not None), key=lambda each: each.group)

    def put_offset_map(self, restore_id: str, map_id: str, topic: TopicName, offset_map: OffsetMap) -> None:
        packed = msgspec.msgpack.encode(offset_map)
        if len(packed) > _MAX_MAP_BYTES:
            raise BackupError(
                f"the offset map of topic {topic} has {len(packed)} bytes, and none may have more than 512 MiB"
            )
        content = bytes(zstd.compress(packed))
        self._storage.put_if_absent(_map_name(restore_id, map_id, topic), hashlib.sha256(content).digest() + content)

    def offset_map(self, restore_id: str, map_id: str, topic: TopicName) -> OffsetMap:
        return self._read_map(_map_name(restore_id, map_id, topic))

    def _read_map(self, name: str) -> OffsetMap:
        data = self._storage.read(name)
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        try:
            if hashlib.sha256(content).digest() != digest:
                raise DocumentFault("it does not match its SHA-256")
            packed = decompress(Compression.ZSTD, content, limit_bytes=_MAX_MAP_BYTES)
            offset_map: OffsetMap = decode_packed(packed, OffsetMap)
        except (DocumentFault, CorruptBatch) as fault:
            raise self._damaged(name, fault) from None
        return offset_map

    def _put_once(self, name: str, value: Stored, kind: type[Stored]) -> Stored:
        with contextlib.suppress(ObjectExists):
            self._storage.put_if_absent(name, encode_sealed(value))
        stored = self._read(name, kind)
        assert stored is not None, "an object that was put is not there"
        return stored

    def _read(self, name: str, kind: type[Stored]) -> Stored | None:
        try:
            content = self._storage.read(name)
        except ObjectNotFound:
            return None
        try:
            found: Stored = decode_sealed(content, kind)
        except DocumentFault as fault:
            raise self._damaged(name, fault) from None
        return found

    def _damaged(self, name: str, fault: Exception) -> DamagedDocument:
        restore_id = name.partition("/")[0]
        return DamagedDocument(
            f"{self._storage.url_of(name)} is damaged: {fault}; to start over delete {self._storage.url_of(restore_id)}"
            f" and the topics that this restore made, and give quorate prune --ignore-restore {restore_id} until then"
        )


#: Documents of a restore beside its plan.
_KINDS: dict[str, type[msgspec.Struct]] = {
    "topics.json": TopicIds,
    "written.json": Happened,
    "done.json": RestoreDone,
    "abandoned.json": Happened,
}


def _map_name(restore_id: str, map_id: str, topic: TopicName) -> str:
    return f"{restore_id}/offset-map-{map_id}/{topic_label(topic)}.msgpack.zst"


def _number(restore_id: str) -> int:
    return int(restore_id.rpartition("-")[2])
