"""Our codecs against Apache Kafka's own classes, byte for byte: the last word, where a JVM is at hand."""

import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.jar import JarUnavailableError, fetch_jar
from quorate.protocol.apis import APIS
from quorate.protocol.codec import encode
from quorate.protocol.schema import ApiMessage, Request
from tests.compat.differential.oracle import joined
from tests.peers.jars import QUICK_START_OPTIONS
from tests.unit.protocol.samples import Sampler

pytestmark = pytest.mark.peer

PROGRAM = Path(__file__).parent / "MessageEcho.java"
SAMPLES_PER_VERSION = 20
# Kafka 4 advertises Produce 0-2 but cannot decode them any more.
FIRST_VERSIONS = {"ProduceRequest": 3, "ProduceResponse": 3}


@pytest.fixture(scope="module")
def jar() -> Path:
    """The library that our messages were generated from."""
    if shutil.which("java") is None:
        pytest.skip("there is no java to ask Apache Kafka with (make jvm)")
    try:
        return fetch_jar()
    except JarUnavailableError as error:
        pytest.skip(str(error))


def _versions() -> Iterator[tuple[type[ApiMessage], int]]:
    for api in APIS.values():
        for message_type in (api.request_type, api.response_type):
            first = FIRST_VERSIONS.get(message_type.__name__, message_type.MIN_VERSION)
            for version in range(first, message_type.MAX_VERSION + 1):
                yield message_type, version


def _echo(jar: Path, messages: list[tuple[type[ApiMessage], int, bytes | None]]) -> list[bytes]:
    """What Apache Kafka writes for each message after reading it; for None, the message with all its defaults."""
    asked = b"".join(
        message_type.API_KEY.to_bytes(2)
        + issubclass(message_type, Request).to_bytes(1)
        + version.to_bytes(2)
        + (len(encoded) if encoded is not None else -1).to_bytes(4, signed=True)
        + (encoded or b"")
        for message_type, version, encoded in messages
    )
    command = ["java", *QUICK_START_OPTIONS, "-cp", str(jar), str(PROGRAM)]
    finished = subprocess.run(command, input=asked, capture_output=True, timeout=200, check=False)
    assert not finished.stderr, finished.stderr.decode()[:2000]
    answers = io.BytesIO(finished.stdout)
    return [answers.read(int.from_bytes(answers.read(4))) for _ in messages]


def _samples(message_type: type[ApiMessage], version: int) -> Iterator[bytes]:
    sampler = Sampler(f"apache {message_type.__name__} {version}")
    for _ in range(SAMPLES_PER_VERSION):
        yield joined(encode(sampler.message(message_type, version), version))


def test_apache_kafka_reads_and_writes_the_same_bytes(jar: Path) -> None:
    messages: list[tuple[type[ApiMessage], int, bytes | None]] = [
        (*pair, sample) for pair in _versions() for sample in _samples(*pair)
    ]

    for (message_type, version, ours), theirs in zip(messages, _echo(jar, messages), strict=True):
        assert theirs == ours, f"{message_type.__name__} version {version}"


def test_apache_kafka_has_the_same_defaults(jar: Path) -> None:
    messages: list[tuple[type[ApiMessage], int, bytes | None]] = [(*pair, None) for pair in _versions()]

    for (message_type, version, _), theirs in zip(messages, _echo(jar, messages), strict=True):
        assert theirs == joined(encode(message_type(), version)), f"{message_type.__name__} version {version}"
