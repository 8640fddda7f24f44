"""Fetch sessions (KIP-227) by hand: what they tell, when they end, and that nobody misses anything through them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quorate.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import NodeUnderTest
from tests.compat.raw_connection import RawConnection
from tests.compat.raw_records import batch, produce
from tests.eventually import eventually

PARTITIONS = 4
NEW_SESSION, NO_SESSION = 0, -1
WITH_TOPIC_IDS = 13
# Apache Kafka shares them out among eight parts.
SLOTS = 8


class SessionClient:
    """Keeps the session of one topic as a consumer does."""

    def __init__(self, connection: RawConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self.session_id = 0
        self.epoch = NEW_SESSION

    def fetch(self, added: Mapping[int, int] | None = None, forgotten: Collection[int] = ()) -> FetchResponse:
        """One request: partitions with their offsets, and those not wanted any more. A refusal changes nothing."""
        response = self.ask(self.session_id, self.epoch, added or {}, forgotten)
        if response.error_code == ErrorCode.NONE:
            is_open = response.session_id != 0
            self.session_id, self.epoch = response.session_id, self.epoch + 1 if is_open else NEW_SESSION
        return response

    def ask(
        self,
        session_id: int,
        epoch: int,
        added: Mapping[int, int],
        forgotten: Collection[int] = (),
        version: int = 11,
    ) -> FetchResponse:
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
            for index, offset in added.items()
        ]
        request = FetchRequest(
            max_wait_ms=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=(FetchTopic(topic=self._topic, partitions=partitions),) if partitions else (),
            forgotten_topics_data=(ForgottenTopic(topic=self._topic, partitions=list(forgotten)),) if forgotten else (),
        )
        return self._connection.ask(request, version, FetchResponse)

    def fetch_alone(self, wanted: Mapping[int, int]) -> list[PartitionData]:
        return told(self.ask(0, NO_SESSION, wanted))


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as opened:
        yield opened


@pytest.fixture
def created(bootstrap: str, connection: RawConnection, topic: str) -> str:
    """The name of a topic whose partitions already have a leader."""
    ConfluentClient(bootstrap).create_topic(topic, partitions=PARTITIONS)
    client = SessionClient(connection, topic)
    everything = dict.fromkeys(range(PARTITIONS), 0)
    eventually(lambda: all(each.error_code == 0 for each in client.fetch_alone(everything)), "leaders")
    return topic


@pytest.fixture
def client(connection: RawConnection, created: str) -> SessionClient:
    return SessionClient(connection, created)


def test_session_tells_only_what_changed(client: SessionClient, connection: RawConnection, created: str) -> None:
    opened = client.fetch({0: 0, 1: 0})
    assert opened.session_id > 0
    assert indexes(told(opened)) == [0, 1]

    assert told(client.fetch()) == []

    produce(connection, created, batch(2), partition=1)
    assert indexes(told(client.fetch())) == [1]

    assert told(client.fetch(forgotten=[1])) == []

    produce(connection, created, batch(2), partition=0)
    assert indexes(told(client.fetch())) == [0]


def test_request_out_of_step_is_refused_and_changes_nothing(client: SessionClient) -> None:
    client.fetch({0: 0})

    for epoch in (client.epoch + 1, -2):
        refused = client.ask(client.session_id, epoch, {1: 0})
        assert (refused.error_code, refused.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
    unknown = client.ask(client.session_id + 12345, 1, {1: 0})
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_id = client.ask(client.session_id, client.epoch, {}, version=WITH_TOPIC_IDS)
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    assert indexes(told(client.fetch({2: 0}))) == [2]


@pytest.mark.parametrize("way", ["final epoch", "another session", "nothing left"])
def test_session_that_has_ended_is_not_found(client: SessionClient, way: str) -> None:
    client.fetch({0: 0, 1: 0})
    ended, epoch = client.session_id, client.epoch
    if way == "final epoch":
        assert client.ask(ended, NO_SESSION, {0: 0}).session_id == 0
    elif way == "another session":
        assert client.ask(ended, NEW_SESSION, {0: 0}).session_id not in (0, ended)
    else:
        last = client.fetch(forgotten=[0, 1])
        assert (last.error_code, last.session_id, last.responses) == (ErrorCode.NONE, 0, ())

    assert client.ask(ended, epoch, {}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("own_node", [{"max.incremental.fetch.session.cache.slots": SLOTS}], indirect=True)
def test_who_finds_no_room_for_a_session_is_served_without_one(own_node: NodeUnderTest, topic: str) -> None:
    ConfluentClient(own_node.bootstrap).create_topic(topic)
    with RawConnection(own_node.bootstrap) as connection:
        client = SessionClient(connection, topic)
        eventually(lambda: client.fetch_alone({0: 0})[0].error_code == ErrorCode.NONE, "a leader")
        opened = [client.ask(0, NEW_SESSION, {0: 0}).session_id for _ in range(SLOTS)]
        assert len(set(opened) - {0}) == SLOTS

        too_many = client.ask(0, NEW_SESSION, {0: 0})
        assert (too_many.session_id, indexes(told(too_many))) == (0, [0])
        assert [client.ask(each, 1, {}).error_code for each in opened] == [ErrorCode.NONE] * SLOTS

        for each in opened:
            client.ask(each, NO_SESSION, {})
        assert client.ask(0, NEW_SESSION, {0: 0}).session_id > 0


@pytest.mark.parametrize("seed", range(4))
def test_session_shows_what_fetches_without_one_show(
    client: SessionClient, connection: RawConnection, created: str, seed: int
) -> None:
    """Random writes, deletions, seeks and changes of the partitions: after each answer the client knows it all."""
    random = Random(seed)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    offsets: dict[int, int] = {}
    known: dict[int, tuple[int, int]] = {}
    for _ in range(60):
        change_the_log(random, connection, created, ends)
        added = {index: random.choice((0, 3, end, end, 99)) for index, end in ends.items() if random.random() < 0.2}
        if client.session_id == 0 and not added:
            continue
        forgotten = [index for index in offsets if index not in added and random.random() < 0.15]
        offsets = {**{index: at for index, at in offsets.items() if index not in forgotten}, **added}
        known = {index: state for index, state in known.items() if index in offsets}

        news = {data.partition_index: data for data in told(client.fetch(added, forgotten))}
        assert set(news) <= set(offsets)
        for data in client.fetch_alone(offsets) if offsets else ():
            index = data.partition_index
            is_new = bool(data.records) or data.error_code != 0 or known.get(index) != state_of(data)
            assert (index in news) == is_new, "all that is new, and nothing else"
            if is_new:
                assert news[index] == data
            # Told again after an error, whatever it is then.
            known[index] = state_of(data) if data.error_code == 0 else (-1, -1)


def change_the_log(random: Random, connection: RawConnection, topic: str, ends: dict[int, int]) -> None:
    partition = random.randrange(PARTITIONS)
    choice = random.random()
    if choice < 0.3:
        count = random.randint(1, 3)
        assert produce(connection, topic, batch(count), partition=partition).base_offset == ends[partition]
        ends[partition] += count
    elif choice < 0.5:
        to_the_end = DeleteRecordsPartition(partition_index=partition, offset=-1)
        topics = (DeleteRecordsTopic(name=topic, partitions=(to_the_end,)),)
        answer = connection.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 1, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == 0


def state_of(data: PartitionData) -> tuple[int, int]:
    return data.high_watermark, data.log_start_offset


def told(response: FetchResponse) -> list[PartitionData]:
    assert response.error_code == ErrorCode.NONE
    return [partition for each in response.responses for partition in each.partitions]


def indexes(partitions: Sequence[PartitionData]) -> list[int]:
    return sorted(each.partition_index for each in partitions)
