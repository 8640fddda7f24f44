"""Fetch sessions: what an incremental request means, and what its answer holds (KIP-227)."""

from uuid import UUID

import pytest

from quorate.broker.fetch.sessions import MOST_PARTITIONS, FetchSessions, RequestedFetch
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData

NOW_MS = 1_000_000


def sessions(slots: int = 10) -> FetchSessions:
    ids = iter(range(1, 1000))
    return FetchSessions(slots=slots, new_session_id=lambda: next(ids))


def request(
    session_id: int, epoch: int, wanted: dict[str, list[int]], forgotten: dict[str, list[int]] | None = None
) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic=topic, partitions=[FetchPartition(partition=i, fetch_offset=100 + i) for i in indexes])
            for topic, indexes in wanted.items()
        ],
        forgotten_topics_data=[ForgottenTopic(topic=t, partitions=i) for t, i in (forgotten or {}).items()],
    )


def plan(cache: FetchSessions, asked: FetchRequest, now_ms: int = NOW_MS) -> RequestedFetch:
    return cache.plan(asked, uses_topic_ids=False, now_ms=now_ms)


def refused(cache: FetchSessions, asked: FetchRequest) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        plan(cache, asked)
    return caught.value.code


def test_a_request_without_a_session_stands_alone() -> None:
    cache = sessions()
    made = plan(cache, request(0, -1, {"a": [0]}))
    assert made.session is None
    assert list(made.targets) == [("a", 0)]
    assert len(cache) == 0


def test_a_session_remembers_its_partitions_so_that_a_request_may_be_empty() -> None:
    cache = sessions()
    opened = plan(cache, request(0, 0, {"a": [0, 1], "b": [0]}))
    assert opened.session is not None
    assert not opened.is_incremental

    again = plan(cache, request(opened.session.session_id, 1, {}))

    assert again.is_incremental
    assert list(again.targets) == [("a", 0), ("a", 1), ("b", 0)]


def test_an_incremental_request_adds_changes_and_forgets() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {"a": [0, 1]})).session
    assert session is not None
    changed = FetchRequest(
        session_id=session.session_id,
        session_epoch=1,
        topics=[FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=777)])],
    )
    assert plan(cache, changed).targets["a", 0].request.fetch_offset == 777
    made = plan(cache, request(session.session_id, 2, {"c": [5]}, {"a": [1]}))
    assert list(made.targets) == [("a", 0), ("c", 5)]


def test_a_wrong_epoch_or_an_unknown_session_is_refused() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {"a": [0]})).session
    assert session is not None
    assert refused(cache, request(session.session_id, 2, {})) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refused(cache, request(999, 1, {})) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    plan(cache, request(session.session_id, 1, {}))
    assert refused(cache, request(session.session_id, 1, {})) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_does_not_mix_names_and_topic_ids() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {"a": [0]})).session
    assert session is not None
    with pytest.raises(KafkaError) as caught:
        cache.plan(request(session.session_id, 1, {}), uses_topic_ids=True, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_topic_ids_keep_two_topics_of_one_name_apart() -> None:
    asked = FetchRequest(
        session_epoch=0,
        topics=[FetchTopic(topic_id=UUID(int=n), partitions=[FetchPartition(partition=0)]) for n in (1, 2)],
    )
    made = sessions().plan(asked, uses_topic_ids=True, now_ms=NOW_MS)
    assert list(made.targets) == [(UUID(int=1), 0), (UUID(int=2), 0)]


def test_the_final_epoch_closes_a_session() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {"a": [0]})).session
    assert session is not None
    plan(cache, request(session.session_id, -1, {"a": [0]}))
    assert len(cache) == 0


def test_a_full_cache_gives_up_only_sessions_that_nobody_has_used_for_long() -> None:
    cache = sessions(slots=2)
    first = plan(cache, request(0, 0, {"a": [0]}), NOW_MS).session
    assert first is not None
    assert plan(cache, request(0, 0, {"a": [0]}), NOW_MS).session is not None
    assert plan(cache, request(0, 0, {"a": [0]}), NOW_MS + 1).session is None
    plan(cache, request(first.session_id, 1, {}), NOW_MS + 130_000)
    assert plan(cache, request(0, 0, {"a": [0]}), NOW_MS + 130_001).session is not None
    assert plan(cache, request(first.session_id, 2, {}), NOW_MS + 130_002).session is first


def test_only_news_is_told_again() -> None:
    target = plan(sessions(), request(0, 0, {"a": [0]})).targets["a", 0]
    quiet = PartitionData(high_watermark=5, log_start_offset=0, records=b"")
    assert target.has_news(quiet)
    assert not target.has_news(quiet)
    assert target.has_news(PartitionData(high_watermark=6, log_start_offset=0, records=b""))
    assert target.has_news(PartitionData(high_watermark=6, log_start_offset=0, records=b"batch"))
    assert target.has_news(PartitionData(high_watermark=6, log_start_offset=3, records=b""))
    assert target.has_news(PartitionData(error_code=6, high_watermark=-1, records=b""))
    assert target.has_news(PartitionData(high_watermark=6, log_start_offset=3, records=b""))


def test_a_nearer_replica_is_news_though_the_partition_is_quiet() -> None:
    """Or its consumer would ask the leader again and again, and get nothing (KIP-392)."""
    target = plan(sessions(), request(0, 0, {"a": [0]})).targets["a", 0]
    target.has_news(PartitionData(high_watermark=5, log_start_offset=0, records=b""))
    nearer = PartitionData(high_watermark=5, log_start_offset=0, preferred_read_replica=4001, records=b"")
    assert target.has_news(nearer)
    assert target.has_news(nearer)


def test_a_session_that_forgets_its_last_partition_ends() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {"a": [0, 1]})).session
    assert session is not None
    assert plan(cache, request(session.session_id, 1, {}, {"a": [1]})).session is session

    ended = plan(cache, request(session.session_id, 2, {}, {"a": [0]}))

    assert (ended.session, ended.targets, len(cache)) == (None, {}, 0)
    assert refused(cache, request(session.session_id, 3, {})) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_that_gave_data_go_to_the_end() -> None:
    cache = sessions()
    session = plan(cache, request(0, 0, {"a": [0, 1, 2]})).session
    assert session is not None
    session.move_to_the_end([("a", 0)])
    assert list(plan(cache, request(session.session_id, 1, {})).targets) == [("a", 1), ("a", 2), ("a", 0)]


def test_sessions_hold_a_bounded_number_of_partitions_together() -> None:
    cache = sessions(slots=1000)
    half = list(range(MOST_PARTITIONS // 2))
    first = plan(cache, request(0, 0, {"a": half}))
    assert first.session is not None
    assert plan(cache, request(0, 0, {"a": half})).session is not None

    crowded = plan(cache, request(0, 0, {"a": [0]}))
    assert crowded.session is None, "it is answered all the same, without a session"
    assert list(crowded.targets) == [("a", 0)]
    assert plan(cache, request(0, 0, {"a": list(range(MOST_PARTITIONS + 1))})).session is None

    grown = plan(cache, request(first.session.session_id, 1, {"b": [0]}))
    assert grown.session is None, "a session that outgrows the room ends"
    assert ("b", 0) in grown.targets
    assert plan(cache, request(0, 0, {"a": [0]})).session is not None


def test_room_is_made_where_a_session_was_not_used_for_long() -> None:
    cache = sessions(slots=1000)
    idle = plan(cache, request(0, 0, {"a": list(range(MOST_PARTITIONS))}))
    assert idle.session is not None
    assert plan(cache, request(0, 0, {"a": [0]}), NOW_MS + 200_000).session is not None
    assert refused(cache, request(idle.session.session_id, 1, {})) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
