"""A Spark that stays for the next commands: started on demand, shared, and gone by itself."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.spark.warm.messages import ANSWERS, ChannelLost, CommandHello, CommandRefused, RunJob, WarmChannel
from quorate.backup.spark.warm.place import WarmPlace
from tests.backup_commands import create_topics, interrupt, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores
from tests.warm_commands import WarmCommands, wait_for_line

pytest.importorskip("pyspark")

TOPIC = "orders"
LOCAL = ("--master", "local[2]")
# The one batch of the topic takes minutes.
SLOW: dict[str, Any] = {"rate_limit_bytes_per_second": 100}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, 1))
        produce(node.bootstrap, TOPIC, 100)
        yield node


@pytest.fixture
def warm(node: QuorateNode, tmp_path: Path) -> Iterator[WarmCommands]:
    commands = WarmCommands(tmp_path, node.bootstrap)
    yield commands
    commands.end()


def test_commands_share_one_that_ends_by_itself(node: QuorateNode, warm: WarmCommands) -> None:
    first = warm.backup(*LOCAL)
    assert first.status == 0, first
    assert "Spark stays warm, for 300 s after the last command that uses it" in first.errors
    keeper = warm.the_one()
    assert (keeper["state"], keeper["jobs"], keeper["commands"]) == ("ready", 1, 0)

    produce(node.bootstrap, TOPIC, 10)
    second = warm.backup(*LOCAL)
    assert second.status == 0, second
    assert "stays warm" not in second.errors
    checked = warm.of_backup("verify", "--deep", *LOCAL)
    assert checked.status == 0, checked
    merged = warm.of_backup("compact", *LOCAL)
    assert merged.status == 0, merged
    again = warm.the_one()
    assert (again["pid"], again["jobs"]) == (keeper["pid"], 4)
    _assert_token_is_nowhere(warm)

    last = warm.of_backup("verify", "--deep", *LOCAL, keep_warm="1s")

    assert last.status == 0, last
    warm.wait_until_nothing_is_left()
    assert warm.places() == []
    assert warm.status() == []


def test_restore_and_export_work_on_it(node: QuorateNode, warm: WarmCommands) -> None:
    done = warm.backup(*LOCAL)
    assert done.status == 0, done
    restores = Restores(warm.backups, node.bootstrap)
    config = restores.write_config(topic_mapping={TOPIC: "restored"})
    restored = warm.run("restore", "--config", str(config), "--keep-warm", "5m", *LOCAL)
    assert restored.status == 0, restored
    assert warm.the_one()["jobs"] >= 2

    table = warm.backups.folder / "table"
    exported = warm.of_backup("export", "--output", str(table), *LOCAL)
    assert exported.status == 0, exported
    assert next(table.rglob("*.parquet"), None) is not None
    # What Spark's own code does depends on the folder and the environment: that is another one.
    assert sorted(row["jobs"] > 0 for row in warm.status()) == [True, True]
    twice = warm.of_backup("export", "--output", str(table), "--overwrite", *LOCAL)
    assert twice.status == 0, twice
    assert len(warm.status()) == 2


def test_commands_that_start_at_once_share_one(warm: WarmCommands) -> None:
    checks = [warm.start_backup(*LOCAL) for _ in range(2)]
    outcomes = [process.communicate(timeout=120) for process in checks]

    # Of two runs of one backup one may lose the race for the manifest: it says so, and copies nothing twice.
    assert 0 in [process.returncode for process in checks], outcomes
    assert warm.the_one()["commands"] == 0
    assert len([line for line in warm.alive() if "warm.keeper" in line]) == 1


def test_other_settings_are_another_one(warm: WarmCommands) -> None:
    assert warm.backup(*LOCAL).status == 0
    assert warm.of_backup("verify", "--deep", *LOCAL, "--conf", "spark.task.maxFailures=5").status == 0
    assert len(warm.status()) == 2


def test_command_that_is_killed_leaves_nothing_that_does_not_end_by_itself(warm: WarmCommands) -> None:
    for delay_s in (0.0, 0.4, 1.5):
        process = warm.start_backup(*LOCAL, keep_warm="2s", **SLOW)
        wait_for_line(process, "starting Spark")
        time.sleep(delay_s)
        process.kill()
        process.communicate()
    process = warm.start_backup(*LOCAL, keep_warm="2s", **SLOW)
    wait_for_line(process, "copying")
    process.kill()
    process.communicate()

    warm.wait_until_nothing_is_left()
    assert warm.places() == []


def test_job_of_a_stopped_command_is_cancelled_and_the_next_command_goes_on(warm: WarmCommands) -> None:
    process = warm.start_backup(*LOCAL, **SLOW)
    wait_for_line(process, "copying")
    keeper = warm.the_one()
    assert keeper["state"] == "in use"

    stopped = interrupt(process)

    assert stopped.status == 130, stopped
    assert "Traceback" not in stopped.errors
    eventually(lambda: warm.the_one()["state"] == "ready", "the keeper to see that the command has gone")
    done = warm.backup(*LOCAL)
    assert done.status == 0, done
    assert warm.the_one()["pid"] == keeper["pid"]


def test_who_has_not_the_token_gets_nothing(warm: WarmCommands) -> None:
    assert warm.backup(*LOCAL).status == 0
    place = WarmPlace(warm.place)
    for first in (CommandHello("0" * 64, 60), CommandHello("", None), RunJob(b"", [], {}, None, 0)):
        with place.dial(10) as connection:
            channel = WarmChannel(connection, ANSWERS)
            channel.send(first)
            assert channel.receive(10) == CommandRefused("the token is another one's")
            with pytest.raises(ChannelLost):
                channel.receive(10)
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\x10\x01" + b"x" * 4097, b"\0\0\0\x01\xc1"):
        with place.dial(10) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            _read_to_the_end(connection)
    assert warm.the_one()["state"] == "ready"
    place.write_token()  # Of a keeper that is no more, say.
    refused = warm.of_backup("verify", "--deep", *LOCAL)
    assert refused.status == 0, refused
    assert "there is no warm Spark (the token is another one's); this command starts one of its own" in refused.errors


def _read_to_the_end(connection: socket.socket) -> None:
    with suppress(ConnectionResetError):
        assert connection.recv(1) == b""


@pytest.mark.parametrize("who", ["keeper", "java"])
def test_one_that_hangs_is_replaced(warm: WarmCommands, who: str) -> None:
    assert warm.backup(*LOCAL).status == 0
    keeper, java = warm.the_one()["pid"], warm.java()
    os.kill(keeper if who == "keeper" else java, signal.SIGSTOP)

    done = warm.of_backup("verify", "--deep", *LOCAL)

    assert done.status == 0, done
    assert "of its own" not in done.errors
    assert warm.the_one()["pid"] != keeper
    eventually(lambda: not Path(f"/proc/{java}").exists(), "the JVM that hung to be gone")


@pytest.mark.parametrize("who", ["keeper", "java"])
def test_command_goes_on_when_its_warm_spark_is_killed(warm: WarmCommands, who: str) -> None:
    process = warm.start_backup(*LOCAL, rate_limit_bytes_per_second=10_000)
    wait_for_line(process, "copying")
    os.kill(warm.the_one()["pid"] if who == "keeper" else warm.java(), signal.SIGKILL)

    _, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    assert "the warm Spark is lost" in errors
    assert warm.of_backup("verify", "--deep", *LOCAL).status == 0  # And the next one starts another.
    assert warm.the_one()["jobs"] == 1


def test_place_that_cannot_be_used_costs_a_line_and_nothing_else(warm: WarmCommands) -> None:
    (warm.temporary / f"quorate-{os.geteuid()}").mkdir(mode=0o755)
    done = warm.backup(*LOCAL)
    assert done.status == 0, done
    assert "is open to others: chmod 700" in done.errors
    assert warm.alive() == []


def test_wrong_duration_is_told_before_anything_is_started(warm: WarmCommands) -> None:
    wrong = warm.backup(*LOCAL, keep_warm="10")
    assert (wrong.status, wrong.errors) == (1, "quorate: --keep-warm: '10' is not a duration such as 90s, 10m or 1h\n")
    assert warm.alive() == []


def _assert_token_is_nowhere(warm: WarmCommands) -> None:
    token = WarmPlace(warm.place).token()
    assert not any(token in line for line in warm.alive())
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            assert token.encode() not in (folder / "environ").read_bytes()
        except OSError:
            continue
    for path in warm.place.rglob("*"):
        if path.is_file() and path.name != "token":
            assert token.encode() not in path.read_bytes()
