"""Settings that cannot work are a sentence that says what is wrong, before Spark is started or anything is made."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.backup.spark.data_source.export import ExportRequest, check_request
from quorate.client.config import ClientConfig
from quorate.client.errors import AuthenticationFailed
from quorate.client.kafka_client import KafkaClient
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.security.listeners import SecurityProtocol
from quorate.testing import ClusterInProcess
from tests.unit.client.fake_broker import FakeCluster

LIVE = {"bootstrap_servers": "127.0.0.1:9092"}
WITH_SASL = SecurityConfig(
    protocol=SecurityProtocol.SASL_PLAINTEXT, sasl_mechanism=SaslMechanism.PLAIN, username="u", password="p"
)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() == 0:
        yield Path("/proc")  # Root may write everywhere else.
        return
    folder = tmp_path / "locked"
    folder.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    yield folder


def test_export_to_a_folder_that_cannot_be_written_is_told_before_spark_starts(read_only: Path) -> None:
    with pytest.raises(QuorateError, match=f"the output {read_only}/made/table cannot be written: "):
        check_request(ExportRequest(options=LIVE, output=str(read_only / "made" / "table")))


def test_export_to_a_file_is_told_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(QuorateError, match="cannot be used: Not a directory"):
        check_request(ExportRequest(options=LIVE, output=str(file)))
    with pytest.raises(QuorateError, match=r"cannot be (used|written): Not a directory"):
        check_request(ExportRequest(options=LIVE, output=str(file / "table")))


def test_export_that_is_only_checked_makes_no_folder(tmp_path: Path) -> None:
    check_request(ExportRequest(options=LIVE, output=str(tmp_path / "a" / "b")))
    assert list(tmp_path.iterdir()) == []


def test_compression_that_spark_does_not_know_is_told_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match="--compression brotli: choose one of zstd, snappy, gzip, lz4, none"):
        check_request(ExportRequest(options=LIVE, output=str(tmp_path / "t"), compression="brotli"))


def test_sasl_to_a_node_without_it_says_so() -> None:
    with ClusterInProcess(nodes=1) as cluster:
        config = ClientConfig(bootstrap_servers=(cluster.bootstrap_servers,), security=WITH_SASL)
        with (
            KafkaClient(config) as client,
            pytest.raises(AuthenticationFailed, match="takes no SASL on this listener: set protocol to"),
        ):
            client.cluster.metadata([])


def test_sasl_to_a_plaintext_listener_says_so() -> None:
    """As Apache Kafka has it: the API is announced, and refused where the listener has no SASL."""
    fake = FakeCluster(1)
    fake.handle(SaslHandshakeRequest, lambda *_: SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    [broker] = fake.brokers.values()
    try:
        config = ClientConfig(bootstrap_servers=fake.bootstrap, security=WITH_SASL)
        with KafkaClient(config) as client, pytest.raises(AuthenticationFailed, match="takes no SASL on this listener"):
            client.cluster.metadata([])
        assert broker.requests(MetadataRequest) == []
    finally:
        broker.close()
