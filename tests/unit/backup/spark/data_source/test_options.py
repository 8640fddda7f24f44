"""What the data source takes as options, and what it says to mistakes."""

import pytest

from quorate.backup.spark.data_source.columns import COLUMN_NAMES
from quorate.backup.spark.data_source.options import BackupSource, parse_options
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import IsolationLevel
from quorate.kernel.errors import QuorateError
from quorate.security.listeners import SecurityProtocol

LIVE = {"bootstrap_servers": "a:1,b:2"}
BACKUP = {"backup": "file:///backups", "backup_id": "nightly"}


def test_live_cluster_with_its_security() -> None:
    security = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "u", "password": "p"}
    source = parse_options(LIVE | security | {"verify_hostname": "false"}).source
    assert isinstance(source, ClientConfig)
    assert source.bootstrap_servers == ("a:1", "b:2")
    assert source.security.protocol is SecurityProtocol.SASL_SSL
    assert not source.security.verify_hostname


def test_backup_at_a_point_in_time() -> None:
    source = parse_options(BACKUP | {"as_of": "2026-01-31T12:00:00Z"}).source
    assert isinstance(source, BackupSource)
    assert source.location.url == "file:///backups/nightly"
    assert source.as_of_ms == 1_769_860_800_000


def test_defaults_read_everything_committed() -> None:
    options = parse_options(LIVE)
    assert options.isolation is IsolationLevel.READ_COMMITTED
    assert options.columns == COLUMN_NAMES
    assert options.topics.selects("any")
    assert options.wants_partition(99)
    assert options.fail_on_data_loss


def test_rows_are_chosen_by_partition_offset_and_time() -> None:
    options = parse_options(
        LIVE
        | {"partitions": "0, 3-5", "start_offset": '{"orders": {"0": 7}}', "end_offset": "9"}
        | {"start_time": "1750000000000", "end_time": "2026-01-31T00:00:00+01:00", "columns": "value, offset"}
    )
    assert [index for index in range(8) if options.wants_partition(index)] == [0, 3, 4, 5]
    assert options.start_offsets.of("orders", 0) == 7
    assert options.start_offsets.of("orders", 1) is None
    assert options.end_offsets.of("orders", 1) == 9
    assert (options.start_ms, options.end_ms) == (1_750_000_000_000, 1_769_814_000_000)
    assert options.columns == ("offset", "value")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "give the option backup"),
        (LIVE | BACKUP, "not both"),
        (LIVE | {"topic": "a"}, "unknown option 'topic'; did you mean 'topics'?"),
        (LIVE | {"manifest": "1"}, "option manifest means nothing for a live cluster"),
        (BACKUP | {"rack": "a"}, "option rack means nothing for a backup"),
        ({"backup": "file:///backups"}, "backup_id is missing"),
        ({"backup": "/backups", "backup_id": "a"}, "has no scheme"),
        (BACKUP | {"manifest": "1", "as_of": "2026-01-01"}, "not both"),
        (LIVE | {"partitions": "a"}, "neither a number nor a span"),
        (LIVE | {"start_offset": "first"}, "option start_offset: 'first'"),
        (LIVE | {"start_time": "yesterday"}, "option start_time: 'yesterday' is no time"),
        (LIVE | {"isolation": "dirty"}, "is not one of read_committed, read_uncommitted"),
        (LIVE | {"columns": "offset,size"}, "'size' is not one of topic"),
        (LIVE | {"max_bytes_per_task": "5"}, "'5' is less than 65536 bytes"),
        (LIVE | {"fail_on_data_loss": "no"}, "neither true nor false"),
    ],
)
def test_mistake_is_told_in_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(QuorateError) as caught:
        parse_options(options)
    assert sentence in str(caught.value)
