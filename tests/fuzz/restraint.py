"""Frames that are not sent: whoever may ask for this gets it, and then nothing is left to be tested.

What is judged is the frame as the node will read it, after all that was done to its bytes.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.codec import decode_part
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_request_header
from tests.fuzz import world as w
from tests.fuzz.world import World

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CREATABLE: Final = {*w.FUZZ_TOPICS, *w.RESERVED_TOPICS, w.STANDING_TOPIC, w.COMPACTED_TOPIC, w.WITNESS_TOPIC}
_MOST_PARTITIONS: Final = 4
#: More than this is refused by every node.
_IMPOSSIBLE_PARTITIONS: Final = 10_000
_BROKER: Final = 4
#: Whom the quotas of these would hold back: the fuzz itself, or who writes meanwhile.
_PRESENT: Final = {None, "ANONYMOUS", "127.0.0.1", "rdkafka", "client", *w.CLIENT_IDS}
_MOST_ELEMENTS: Final = 1_000_000


class Restraint:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rules: dict[int, Callable[[Any], bool]] = {
            ApiKey.CREATE_TOPICS: _creates_too_much,
            ApiKey.CREATE_PARTITIONS: _adds_too_much,
            ApiKey.METADATA: _creates_by_asking,
            ApiKey.DELETE_TOPICS: self._deletes_the_witness,
            ApiKey.PRODUCE: lambda request: self._touches_the_witness(request.topic_data),
            ApiKey.DELETE_RECORDS: lambda request: self._touches_the_witness(request.topics),
            ApiKey.ADD_PARTITIONS_TO_TXN: self._adds_the_witness,
            ApiKey.WRITE_TXN_MARKERS: lambda request: any(self._touches_the_witness(m.topics) for m in request.markers),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request: self._touches_the_witness(request.topics),
            ApiKey.ALTER_CONFIGS: _configures,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: _configures,
            ApiKey.ALTER_CLIENT_QUOTAS: _throttles,
            ApiKey.UNREGISTER_BROKER: lambda request: request.broker_id in world.node_ids,
            ApiKey.REMOVE_RAFT_VOTER: lambda request: request.voter_id in world.node_ids,
        }

    def permits(self, frame: bytes) -> bool:
        """Whether the node may be sent this frame, given without its length."""
        try:
            header = decode_request_header(frame)
            rule, api = self._rules.get(header.api_key), find_api(header.api_key)
            if rule is None or api is None or not header.is_known:
                return True
            request, _ = decode_part(api.request_type, frame, header.api_version, header.body_position, _MOST_ELEMENTS)
        except ProtocolError:
            return True
        return not rule(request)

    def _touches_the_witness(self, topics: Iterable[Any]) -> bool:
        return any(
            getattr(topic, "name", None) == w.WITNESS_TOPIC
            or getattr(topic, "topic_id", None) == self._world.witness_topic_id
            for topic in topics or ()
        )

    def _deletes_the_witness(self, request: Any) -> bool:
        return w.WITNESS_TOPIC in (request.topic_names or ()) or self._touches_the_witness(request.topics)

    def _adds_the_witness(self, request: Any) -> bool:
        topics = [*(request.v3_and_below_topics or ())]
        for transaction in request.transactions or ():
            topics += transaction.topics
        return self._touches_the_witness(topics)


def _is_creatable_elsewhere(name: str | None) -> bool:
    return name is not None and name not in _CREATABLE and _LEGAL_NAME.fullmatch(name) is not None


def _creates_too_much(request: Any) -> bool:
    if request.validate_only:
        return False
    counts = [max(topic.num_partitions, len(topic.assignments)) for topic in request.topics]
    return (
        any(_is_creatable_elsewhere(topic.name) for topic in request.topics)
        or any(_MOST_PARTITIONS < count <= _IMPOSSIBLE_PARTITIONS for count in counts)
        or len(counts) > 20
    )


def _adds_too_much(request: Any) -> bool:
    return not request.validate_only and any(
        topic.name == w.WITNESS_TOPIC or _MOST_PARTITIONS < topic.count <= _IMPOSSIBLE_PARTITIONS
        for topic in request.topics
    )


def _creates_by_asking(request: Any) -> bool:
    return request.allow_auto_topic_creation and any(
        _is_creatable_elsewhere(topic.name) for topic in request.topics or ()
    )


def _configures(request: Any) -> bool:
    """A topic that somebody else needs, or the node itself."""
    return not request.validate_only and any(
        resource.resource_name == w.WITNESS_TOPIC or resource.resource_type == _BROKER for resource in request.resources
    )


def _throttles(request: Any) -> bool:
    return not request.validate_only and any(
        all(part.entity_name in _PRESENT for part in entry.entity) for entry in request.entries
    )
