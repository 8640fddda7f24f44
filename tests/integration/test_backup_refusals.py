"""Storage that refuses the commands: no space, no permission, no such bucket, no credentials. One clear sentence, a
status, and nothing half committed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import QUORATE, Backups, Finished, create_topics, produce, run_quorate
from tests.integration.backup_storage import azurite, object_servers
from tests.peers.quorate_node import QuorateNode

pytest.importorskip("pyspark")

NOBODY = "65534"
IS_ROOT = os.geteuid() == 0
# More than the small disk holds.
RECORDS, VALUE_BYTES, SMALL_DISK = 5_000, 1_000, "2m"
UNCOMPRESSED = {"compression": "none", "segment_max_bytes": 1024 * 1024}
CLOUD_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic("orders", 2))
        produce(node.bootstrap, "orders", RECORDS, value_size=VALUE_BYTES)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own where the backups are kept."""
    folder = tmp_path / "storage"
    folder.mkdir()
    mounted = _mount("-t", "tmpfs", "-o", f"size={SMALL_DISK}", "quorate-test", str(folder))
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read: pytest's own are closed to others than the one who runs it."""
    folder = Path(tempfile.mkdtemp(prefix="quorate-refusals-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_full_disk_is_told_and_the_next_run_with_more_room_is_whole(backups: Backups, small_disk: Path) -> None:
    done = backups.backup(backup=UNCOMPRESSED)
    _assert_one_sentence(done, f"cannot write file://{small_disk}", "there is no space left on the device")
    assert backups.catalog().numbers() == []

    assert _mount("-o", "remount,size=64m", str(small_disk)).returncode == 0
    again = backups.backup("--orphan-age-hours", "0", backup=UNCOMPRESSED)
    assert again.status == 0, again
    assert f"{RECORDS:,} records" in again.output
    assert {path.name for path in backups.object_paths()} == {
        Path(name).name for name in backups.manifest().object_names()
    }
    assert backups.verify().status == 0


def test_full_disk_leaves_what_was_committed_before(node: QuorateNode, backups: Backups, small_disk: Path) -> None:
    assert backups.backup(backup={"compression": "zstd"}).status == 0
    before = backups.manifest()
    _assert_one_sentence(backups.backup(backup=UNCOMPRESSED), "there is no space left on the device")
    assert backups.catalog().numbers() == [1]
    assert backups.manifest() == before
    assert backups.verify().status == 0


@pytest.mark.skipif(IS_ROOT and shutil.which("setpriv") is None, reason="root may write everywhere, and has no setpriv")
@pytest.mark.parametrize("command", ["backup", "verify", "list-backups"])
def test_storage_without_permission_is_told(node: QuorateNode, open_folder: Path, command: str) -> None:
    backups = Backups(open_folder, node.bootstrap)
    config = backups.write_config()
    storage = open_folder / "storage"
    storage.mkdir()
    storage.chmod(0o000)
    try:
        options = ["--config", str(config)] if command == "backup" else ["--storage", backups.url]
        done = _without_privileges(command, *options, *(["--backup-id", "nightly"] if command == "verify" else []))
    finally:
        storage.chmod(0o700)
    _assert_one_sentence(done, f"file://{storage}", "permission denied")
    assert list(storage.iterdir()) == []


def test_storage_that_may_be_read_but_not_written_is_told_before_anything_is_copied(
    node: QuorateNode, open_folder: Path
) -> None:
    backups = Backups(open_folder, node.bootstrap)
    config = backups.write_config()
    storage = open_folder / "storage"
    storage.mkdir(mode=0o555)
    done = _without_privileges("backup", "--config", str(config))
    _assert_one_sentence(done, f"cannot write file://{storage}", "permission denied")
    assert "starting Spark" not in done.errors
    storage.chmod(0o700)


@pytest.fixture(scope="module")
def moto_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with object_servers.moto(tmp_path_factory.mktemp("moto") / "server.log") as endpoint:
        yield endpoint


@pytest.mark.parametrize("command", ["backup", "verify", "list-backups"])
def test_wrong_bucket_is_told(backups: Backups, moto_endpoint: str, command: str) -> None:
    place = {"url": "s3://no-such-bucket/x", "endpoint": moto_endpoint}
    done = _on_cloud(backups, command, place, object_servers.ENVIRONMENT)
    _assert_one_sentence(done, f"bucket no-such-bucket does not exist at {moto_endpoint}")
    assert "starting Spark" not in done.errors


def test_keys_that_the_store_does_not_accept_are_told(backups: Backups, tmp_path: Path) -> None:
    with object_servers.moto(tmp_path / "server.log", INITIAL_NO_AUTH_ACTION_COUNT="1") as endpoint:
        place = {"url": f"s3://{object_servers.BUCKET}/x", "endpoint": endpoint}
        done = _on_cloud(backups, "backup", place, object_servers.ENVIRONMENT)
    _assert_one_sentence(done, "access was denied", "check the credentials and their rights")
    assert "test-secret" not in done.errors


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://bucket/x", "AWS_ACCESS_KEY_ID"),
        ("gs://bucket/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_missing_credentials_are_told_with_the_name_to_set(backups: Backups, url: str, variable: str) -> None:
    """And the URL reaches that cloud's client: it is not taken for a folder of such a name."""
    done = _on_cloud(backups, "backup", {"url": url, "endpoint": "http://127.0.0.1:9"}, {})
    _assert_one_sentence(done, url, "no credentials were found", variable)


def test_store_that_cannot_be_reached_is_told(backups: Backups) -> None:
    endpoint = f"http://127.0.0.1:{object_servers.free_port()}/{azurite.ACCOUNT}"
    done = _on_cloud(backups, "backup", {"url": "az://container/x", "endpoint": endpoint}, azurite.ENVIRONMENT)
    _assert_one_sentence(done, f"the storage cannot be reached at {endpoint}")


def _on_cloud(backups: Backups, command: str, place: dict[str, str], credentials: Mapping[str, str]) -> Finished:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(CLOUD_SETTINGS)}
    if command == "backup":
        options = ["--config", str(backups.write_config(storage=place))]
    else:
        options = ["--storage", place["url"], "--endpoint", place["endpoint"]]
        options += ["--backup-id", "nightly"] if command == "verify" else []
    return run_quorate(command, *options, environment=environment | dict(credentials))


def _without_privileges(*arguments: str) -> Finished:
    become = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"] if IS_ROOT else []
    done = subprocess.run([*become, str(QUORATE), *arguments], capture_output=True, text=True, timeout=240, check=False)
    return Finished(done.returncode, done.stdout, done.stderr)


def _mount(*options: str) -> "subprocess.CompletedProcess[str]":
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    return subprocess.CompletedProcess(["mount"], 1, "", "there is no mount command")


def _assert_one_sentence(done: Finished, *parts: str) -> None:
    assert done.status == 1, done
    (line,) = [line for line in done.errors.splitlines() if line.startswith("quorate: ")]
    for part in parts:
        assert part in line, done
    assert "Traceback" not in done.errors
