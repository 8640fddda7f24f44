"""The limit over TLS: each request answered as the load expects it, each batch in its file, however bytes come."""

import asyncio
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from benchmarks import wire
from benchmarks.certificates import Certificates, make_certificates
from benchmarks.tls_limit.connections import READ_BYTES, TlsConnection
from benchmarks.tls_limit.logs import Logs
from benchmarks.tls_limit.requests import Requests

TOPIC = "load"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path, None)


def batches_of(counts: list[int], value_size_bytes: int = 700) -> list[bytes]:
    random = Random(5)
    return [wire.build_batch(count, value_size_bytes, random, 1) for count in counts]


def frame(partition: int, batch: bytes, correlation_id: int) -> bytes:
    head, rest = wire.produce_request(TOPIC, partition, batch)
    whole = bytearray(head + rest)
    wire.patch_correlation_id(whole, correlation_id)
    return bytes(whole)


def offsets(answers: bytes) -> list[tuple[int, int, int]]:
    """Correlation id, error code and base offset of each answer."""
    layout = wire.ProduceResponseLayout(TOPIC)
    fields = []
    for position in range(0, len(answers), layout.size_bytes):
        size, correlation_id, _, error_code, base_offset = layout.fields.unpack_from(answers, position)
        assert size == layout.size_bytes - 4
        fields.append((correlation_id, error_code, base_offset))
    return fields


def test_offsets_count_the_records_of_each_partition(logs: Logs, tmp_path: Path) -> None:
    requests = Requests(logs)
    sent = list(zip([0, 0, 1, 0], batches_of([3, 1, 5, 2]), strict=True))

    answers = b"".join(
        requests.answer(memoryview(frame(partition, batch, 40 + number))).frame
        for number, (partition, batch) in enumerate(sent)
    )

    assert offsets(answers) == [(40, 0, 0), (41, 0, 3), (42, 0, 0), (43, 0, 4)]
    for partition in (0, 1):
        written = (tmp_path / f"{TOPIC}-{partition}.log").read_bytes()
        assert written == b"".join(batch for sent_to, batch in sent if sent_to == partition)


def test_a_topic_is_made_and_removed_with_its_files(logs: Logs, tmp_path: Path) -> None:
    requests = Requests(logs)
    created = requests.answer(memoryview(wire.create_topics_request([TOPIC], 1, ()))).frame
    requests.answer(memoryview(frame(0, batches_of([1])[0], 1)))
    assert [path.name for path in tmp_path.iterdir()] == [f"{TOPIC}-0.log"]
    deleted = requests.answer(memoryview(wire.delete_topics_request(TOPIC))).frame

    assert [wire.topic_error_code(answer[4:], TOPIC) for answer in (created, deleted)] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_what_the_load_does_not_send_is_refused(logs: Logs) -> None:
    with pytest.raises(ValueError, match="API key 3"):
        Requests(logs).answer(memoryview(wire.frame_head(3, 9, b"\0\0\0\0\0\0\0\0")))


class Wire(asyncio.Transport):
    """What the limit has sent, until the client takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return False


class Client:
    """A client in memory, whose bytes reach the limit in the pieces that a test chooses."""

    def __init__(self, certificates: Certificates, logs: Logs, pieces: Iterator[int]) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.key_store)
        self._limit = TlsConnection(context, logs, memoryview(bytearray(READ_BYTES)))
        self._wire = Wire()
        self._limit.connection_made(self._wire)
        self._pieces = pieces
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = certificates.trust.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._exchange()

    def ask(self, frames: bytes) -> bytes:
        self._tls.write(frames)
        self._exchange()
        answers = b""
        while True:
            try:
                answers += self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                return answers

    def _exchange(self) -> None:
        left = self._outgoing.read()
        while left:
            size = min(next(self._pieces), len(left), READ_BYTES)
            self._limit.get_buffer(-1)[:size] = left[:size]
            self._limit.buffer_updated(size)
            left = left[size:]
        self._incoming.write(self._wire.sent)
        self._wire.sent = b""


@pytest.mark.parametrize("seed", range(12))
def test_requests_are_answered_in_whatever_pieces_they_come(
    certificates: Certificates, logs: Logs, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    largest = random.choice([7, 1000, 40_000, READ_BYTES])
    client = Client(certificates, logs, iter(lambda: random.randint(1, largest), None))
    counts = [random.choice([1, 2, 20, 200]) for _ in range(8 if largest == 7 else 30)]
    batches = batches_of(counts)

    answers = client.ask(b"".join(frame(0, batch, number) for number, batch in enumerate(batches)))

    expected = [(number, 0, sum(counts[:number])) for number in range(len(counts))]
    assert offsets(answers) == expected
    assert (tmp_path / f"{TOPIC}-0.log").read_bytes() == b"".join(batches)


def test_an_answer_waits_until_what_it_is_about_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("benchmarks.tls_limit.logs.os.fdatasync", synced.append)

    async def write() -> list[int]:
        with ThreadPoolExecutor(1) as executor:
            log = Logs(tmp_path, executor).log(TOPIC, 0)
            told: list[int] = []
            all_told = asyncio.get_running_loop().create_future()
            for number in range(3):
                log.append(memoryview(b"batch"), 1)
                log.when_durable(lambda number=number: told.append(number))  # type: ignore[misc]
            log.when_durable(lambda: all_told.set_result(None))
            assert told == []
            await all_told
            return told

    assert asyncio.run(write()) == [0, 1, 2]
    assert len(synced) == 2  # The first alone, then one for all that came meanwhile.
