"""What verification looks at: all that any manifest names, and each manifest itself."""

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.spark.upkeep.verification import take_inventory
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, run_backup
from tests.unit.backup.memory_storage import MemoryStorage


def storage_with_runs(count: int) -> MemoryStorage:
    storage, log = MemoryStorage(), PartitionLog()
    for number in range(count):
        log.append(4)
        run_backup(storage, log, f"run{number}")
    return storage


def catalog_of(storage: MemoryStorage) -> ManifestCatalog:
    return ManifestCatalog(storage, BACKUP_ID)


def test_a_backup_that_does_not_exist_has_none() -> None:
    assert take_inventory(catalog_of(MemoryStorage())) is None


def test_every_object_in_the_storage_is_looked_at() -> None:
    storage = storage_with_runs(3)

    inventory = take_inventory(catalog_of(storage))

    assert inventory is not None
    assert (inventory.manifest_number, inventory.manifest_count, inventory.damages) == (3, 3, [])
    assert {each.name for each in inventory.segments} == {name for name in storage.contents if "topics/" in name}


def test_a_damaged_manifest_is_named_and_the_others_are_still_looked_at() -> None:
    for number in (1, 2, 3):
        storage = storage_with_runs(3)
        name = f"manifests/{number:06d}.json"
        storage.store(name, storage.contents[name].replace(b"run", b"Run"))

        inventory = take_inventory(catalog_of(storage))

        assert inventory is not None
        assert [damage.name for damage in inventory.damages] == [name]
        assert inventory.segments


def test_a_manifest_that_is_missing_between_others_is_named() -> None:
    storage = storage_with_runs(3)
    del storage.contents["manifests/000002.json"]

    inventory = take_inventory(catalog_of(storage))

    assert inventory is not None
    assert [(damage.name, damage.message) for damage in inventory.damages] == [
        ("manifests/000002.json", "backup nightly has no manifest 2")
    ]


def test_older_manifests_can_be_left_out() -> None:
    storage = storage_with_runs(3)
    storage.store("manifests/000001.json", b"")

    inventory = take_inventory(catalog_of(storage), newest_only=True)

    assert inventory is not None
    assert (inventory.manifest_count, inventory.damages) == (1, [])
