"""librdkafka's mock cluster and its controls for faults, through the C symbols of the confluent-kafka wheel."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import confluent_kafka

from quorate.kernel.errors import ErrorCode

PRODUCER = 0
ERROR_SIZE = 256


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """Node ids count from 1. It knows topics only once they are created here, and no newer Fetch than 11."""

    def __init__(self, brokers: int = 3) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(ERROR_SIZE)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._handle = ctypes.c_void_p(self._library.rd_kafka_new(PRODUCER, conf, error, ctypes.c_size_t(ERROR_SIZE)))
        assert self._handle, error.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._handle, brokers))
        assert self._cluster

    @property
    def bootstrap(self) -> str:
        servers: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return servers.decode()

    def create_topic(self, topic: str, partitions: int, replication_factor: int = 3) -> None:
        self._check(
            self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, replication_factor)
        )

    def set_leader(self, topic: str, partition: int, node_id: int) -> None:
        self._check(self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, node_id))

    def set_follower(self, topic: str, partition: int, node_id: int) -> None:
        self._check(
            self._library.rd_kafka_mock_partition_set_follower(self._cluster, topic.encode(), partition, node_id)
        )

    def take_down(self, node_id: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_down(self._cluster, node_id))

    def bring_up(self, node_id: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_up(self._cluster, node_id))

    def set_rack(self, node_id: int, rack: str) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_rack(self._cluster, node_id, rack.encode()))

    def set_round_trip_ms(self, node_id: int, round_trip_ms: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_rtt(self._cluster, node_id, round_trip_ms))

    def push_errors(self, api_key: int, codes: Sequence[ErrorCode]) -> None:
        """The next requests of this API are answered with these errors, one each."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api_key), ctypes.c_size_t(len(codes)), array
        )

    def limit_versions(self, api_key: int, lowest: int, highest: int) -> None:
        self._check(
            self._library.rd_kafka_mock_set_apiversion(
                self._cluster, ctypes.c_int16(api_key), ctypes.c_int16(lowest), ctypes.c_int16(highest)
            )
        )

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, code: int) -> None:
        assert code == 0, f"librdkafka answered {code}"
