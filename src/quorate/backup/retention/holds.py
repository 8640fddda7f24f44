"""What was decided about single manifests: held, released, or being pruned. Does I/O.

Every manifest has a log of decisions, each sealed by its SHA-256, and the last one counts. A decision is put, where
nothing is yet, behind the one that it was made on: of a hold and a prune that meet, the storage lets one win. The
decision to prune is never taken back, so whoever finds one can carry it out. The logs are beside the backup's folder,
in which later runs delete what no manifest names.

A last decision that is damaged may have been any of them. So the manifest stays, and its objects with it, and whoever
wants to read it may: what was pruned has a mark in its place. Holding or releasing it puts a new decision behind it.
"""

import re
from collections.abc import Callable

import msgspec

from quorate.backup.errors import BackupError, ObjectExists, ObjectNotFound
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.names import is_layer_name, is_segment_name
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.objects.stored_documents import (
    DocumentFault,
    MomentMs,
    SizeBytes,
    decode_sealed,
    encode_sealed,
    one_line,
)

_ENTRY = re.compile(r"(\d{6,12})/(\d{4,9})\.json")


class NotHeld(BackupError):
    """The manifest is not there, or about to go."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, tag="hold"):
    """No prune takes the manifest, or an object that it names."""

    since_ms: MomentMs
    reason: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    released_ms: MomentMs


class Pruning(msgspec.Struct, frozen=True, kw_only=True, tag="prune"):
    """The manifest goes, and with it those of these objects that no other manifest names."""

    objects: dict[str, SizeBytes] = {}  # Sizes by name.


class DamagedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided is not known."""

    name: str  # Of the object, beside the backup's folder.
    message: str


Decision = Hold | Release | Pruning


def holds_location(root: StorageLocation, backup_id: str) -> StorageLocation:
    """No backup's id has a tilde."""
    return root.below(f"{backup_id}~holds")


class HoldLedger:
    def __init__(self, storage: ObjectStorage, backup_id: str) -> None:
        self._storage = storage
        self._backup_id = backup_id

    def decisions(self) -> dict[int, Decision | DamagedDecision]:
        """The last decision about each manifest; those without a decision are not here."""
        last: dict[int, int] = {}
        for number, version in self._entries(""):
            last[number] = max(version, last.get(number, 0))
        found = ((number, self._read(number, version)) for number, version in last.items())
        return {number: decision for number, decision in sorted(found) if decision is not None}

    def holds(self) -> dict[int, Hold]:
        return {number: each for number, each in self.decisions().items() if isinstance(each, Hold)}

    def damages(self) -> list[DamagedDecision]:
        return [each for each in self.decisions().values() if isinstance(each, DamagedDecision)]

    def drops(self, catalog: ManifestCatalog, number: int) -> bool:
        """Whether the manifest is being pruned, or gone. A prune that begins later sees all that was stored before."""
        return isinstance(self._last(number)[1], Pruning) or number not in catalog.numbers()

    def hold(self, catalog: ManifestCatalog, number: int, hold: Hold) -> Hold:
        """Hold the manifest; returns the hold that counts, which may be an earlier one."""

        def decide(last: Decision | DamagedDecision | None) -> Decision | None:
            if isinstance(last, Pruning):
                raise NotHeld(f"manifest {number} of backup {self._backup_id} is being pruned: it cannot be held")
            return None if isinstance(last, Hold) else hold

        self._require(catalog, number)
        held = self._decide(number, decide)
        assert isinstance(held, Hold)
        if number not in catalog.numbers():
            self.forget(number)  # It was pruned to the end before it was held.
        self._require(catalog, number)
        return held

    def release(self, number: int, *, now_ms: int) -> Hold | DamagedDecision | None:
        """End a hold; returns what was ended, a damaged decision among them, and None where nothing was held."""
        ended: list[Hold | DamagedDecision] = []

        def decide(last: Decision | DamagedDecision | None) -> Decision | None:
            ended[:] = [last] if isinstance(last, Hold | DamagedDecision) else ended
            return Release(released_ms=now_ms) if isinstance(last, Hold | DamagedDecision) else None

        self._decide(number, decide)
        return ended[0] if ended else None

    def begin_pruning(self, number: int, objects: dict[str, int]) -> bool:
        """Decide to drop the manifest; False where it is held, or may be."""

        def decide(last: Decision | DamagedDecision | None) -> Decision | None:
            return None if isinstance(last, Hold | Pruning | DamagedDecision) else Pruning(objects=objects)

        decision = self._decide(number, decide)
        return isinstance(decision, Pruning)

    def forget(self, number: int) -> None:
        """Delete the decisions about a manifest that is gone. The last one goes last, so that it counts until then."""
        names = [each.name for each in self._storage.objects(_folder(number))]
        for name in sorted(names, key=lambda name: (_ENTRY.fullmatch(name) is not None, name)):
            self._storage.delete(name)  # First what a process that was killed left half written.

    def _require(self, catalog: ManifestCatalog, number: int) -> None:
        if number not in catalog.numbers():
            raise NotHeld(f"backup {self._backup_id} has no manifest {number}")

    def _decide(
        self, number: int, decide: Callable[[Decision | DamagedDecision | None], Decision | None]
    ) -> Decision | DamagedDecision | None:
        """Put what is decided on the last decision; None leaves that one. Returns the one that counts."""
        while True:
            version, last = self._last(number)
            wanted = decide(last)
            if wanted is None:
                return last
            try:
                self._storage.put_if_absent(_name(number, version + 1), encode_sealed(wanted))
            except ObjectExists:
                continue  # Somebody else's, or one's own whose answer was lost.
            return wanted

    def _last(self, number: int) -> tuple[int, Decision | DamagedDecision | None]:
        version = max((version for _, version in self._entries(_folder(number))), default=0)
        return version, None if version == 0 else self._read(number, version)

    def _entries(self, folder: str) -> list[tuple[int, int]]:
        matches = (_ENTRY.fullmatch(each.name) for each in self._storage.objects(folder))
        found = ((match[0], int(match[1]), int(match[2])) for match in matches if match)
        return [(number, version) for name, number, version in found if name == _name(number, version)]

    def _read(self, number: int, version: int) -> Decision | DamagedDecision | None:
        name = _name(number, version)
        try:
            return _decoded(self._storage.read(name))
        except ObjectNotFound:
            return None  # Forgotten since it was listed.
        except DocumentFault as fault:
            return DamagedDecision(
                name=f"{self._backup_id}~holds/{name}",
                message=(
                    f"{self._storage.url_of(name)} is damaged: {fault}; manifest {number} stays, whatever it said: "
                    f"decide anew with quorate hold --backup-id {self._backup_id} --manifest {number}, "
                    "and --release if it is not to be held"
                ),
            )


def _decoded(data: bytes) -> Decision:
    decision: Decision = decode_sealed(data, Hold | Release | Pruning)
    if isinstance(decision, Pruning):
        for name in decision.objects:
            if not is_segment_name(name) and not is_layer_name(name):
                raise DocumentFault(f"it names {one_line(name)!r}, which is no segment and no layer")
    return decision


def _folder(number: int) -> str:
    return f"{number:06d}/"


def _name(number: int, version: int) -> str:
    return f"{_folder(number)}{version:04d}.json"
