"""Prunes while a restore or a verification of the same backup runs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.errors import ManifestPruned
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.restore.ledger import RestoreLedger, restores_below
from quorate.backup.retention.holds import HoldLedger, holds_location
from quorate.backup.retention.prune import Pruner, PruneReport
from quorate.backup.retention.prune_policy import PrunePolicy
from quorate.backup.spark.upkeep.verification import take_inventory, verify_quickly, without_pruned
from quorate.client.kafka_client import KafkaClient
from tests.backup_commands import BACKUP_ID, Backups, consume, create_topics, produce
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, client_of
from tests.spark_session import InThisProcess, QuietWatcher, SparkWithEvent, run_in_process
from tests.unit.backup.retained_backups import QuietWatcher as QuietPruneWatcher

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(300)

TOPIC = "orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, 1))
        produce(node.bootstrap, TOPIC, 200)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    """Three snapshots, which share no object."""
    backups = Backups(tmp_path, node.bootstrap)
    for _ in range(3):
        run_in_process(backups, backups.write_config(topics={"include": [TOPIC]}), InThisProcess)
    return backups


@pytest.fixture(scope="module")
def client(node: QuorateNode) -> Iterator[KafkaClient]:
    with client_of(node.bootstrap) as client:
        yield client


def prune(backups: Backups, ignored_restores: Sequence[str] = ()) -> PruneReport:
    root = StorageLocation(backups.url)
    pruner = Pruner(
        open_storage(backups.location),
        backups.catalog(),
        HoldLedger(open_storage(holds_location(root, BACKUP_ID)), BACKUP_ID),
        RestoreLedger(open_storage(restores_below(root, BACKUP_ID))),
    )
    policy = PrunePolicy(keep_last=1)
    return pruner.prune(policy, QuietPruneWatcher(), now_ms=0, ignored_restores=ignored_restores)


class StoppedBeforeWriting(InThisProcess):
    """Ctrl-C when the plan is stored and nothing is written."""

    def slots(self) -> int:
        raise KeyboardInterrupt


def pruning_in_job(backups: Backups, number: int) -> Callable[[], SparkWithEvent]:
    """A session on which a prune runs right before the n-th job: the survey, or the writing."""
    jobs: list[int] = []

    def happen() -> None:
        jobs.append(1)
        if len(jobs) == number:
            prune(backups)

    session = SparkWithEvent(InThisProcess(), before=happen)
    return lambda: session


def test_pruned_while_it_is_surveyed_a_restore_says_so_and_has_changed_nothing(
    node: QuorateNode, backups: Backups, client: KafkaClient
) -> None:
    restores = Restores(backups, node.bootstrap)

    with pytest.raises(ManifestPruned, match=f"manifest 1 of backup {BACKUP_ID} was pruned"):
        restores.run_in_process(pruning_in_job(backups, 1), topic_mapping={TOPIC: "surveyed"}, manifest=1)

    assert "surveyed" not in client.cluster.metadata().topics
    assert backups.catalog().numbers() == [3]
    restores.run_in_process(topic_mapping={TOPIC: "surveyed"})
    assert consume(node.bootstrap, "surveyed", 0) == consume(node.bootstrap, TOPIC, 0)


def test_what_an_unfinished_restore_reads_stays_until_it_is_done(node: QuorateNode, backups: Backups) -> None:
    Restores(backups, node.bootstrap).run_in_process(
        pruning_in_job(backups, 2), topic_mapping={TOPIC: "written"}, manifest=1
    )

    assert consume(node.bootstrap, "written", 0) == consume(node.bootstrap, TOPIC, 0)
    assert backups.catalog().numbers() == [1, 3]
    assert prune(backups).pruned == [1]


def test_a_restore_that_nobody_goes_on_with_can_be_ignored(node: QuorateNode, backups: Backups) -> None:
    restores = Restores(backups, node.bootstrap)
    with pytest.raises(KeyboardInterrupt):
        restores.run_in_process(StoppedBeforeWriting, topic_mapping={TOPIC: "left"}, manifest=1)
    (kept, _) = prune(backups).kept
    assert (kept.number, "not done" in str(kept.kept_because)) == (1, True)
    restore_id = str(kept.kept_because).split()[3].rstrip(",")

    assert prune(backups, [restore_id]).pruned == [1]

    with pytest.raises(ManifestPruned, match="manifest 1 of backup"):
        restores.run_in_process(topic_mapping={TOPIC: "left"}, manifest=1)


def test_what_is_pruned_while_it_is_verified_is_no_damage(backups: Backups) -> None:
    catalog = backups.catalog()
    inventory = take_inventory(catalog)
    assert inventory is not None
    prune(backups)

    report = verify_quickly(open_storage(backups.location), inventory, QuietWatcher())

    assert len(report.damages) == 2
    assert without_pruned(report, catalog).damages == []


def test_an_object_that_is_lost_is_still_damage_after_a_prune(backups: Backups) -> None:
    catalog = backups.catalog()
    (name,) = backups.manifest().object_names()
    inventory = take_inventory(catalog)
    assert inventory is not None
    prune(backups)
    open_storage(backups.location).delete(name)

    report = without_pruned(verify_quickly(open_storage(backups.location), inventory, QuietWatcher()), catalog)

    assert [damage.name for damage in report.damages] == [name]
