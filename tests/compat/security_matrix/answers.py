"""An answer as plain data, without what differs from one node, moment or run to the next.

What has its default is left out. Where only it counts whether something is there, the value is ``"some"``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from quorate.kernel.errors import ErrorCode
from quorate.protocol.schema import Message, fields_of
from tests.compat.security_matrix.names import LASTING, without_numbers

Told = dict[str, Any]

_LEFT_OUT: Final = frozenset(
    {
        "throttle_time_ms",
        # Where nodes are, and how they are set up.
        "brokers",
        "cluster_id",
        "controller_id",
        "heartbeat_interval_ms",
        "host",
        "log_dir",
        "node_endpoints",
        "nodes",
        "port",
        # Of ApiVersions: what else there is.
        "api_keys",
        "finalized_features",
        "finalized_features_epoch",
        "supported_features",
        # Of logs and transactions, which move on.
        "aborted_transactions",
        "current_leader",
        "current_voters",
        "last_caught_up_timestamp",
        "last_fetch_timestamp",
        "members",
        "observers",
    }
)
#: Anything from zero on is some.
_POSITIONS: Final = frozenset(
    {
        "active_producers",
        "assignment_epoch",
        "base_offset",
        "committed_leader_epoch",
        "committed_offset",
        "end_offset",
        "group_epoch",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_end_offset",
        "log_start_offset",
        "member_epoch",
        "low_watermark",
        "offset",
        "offset_lag",
        "partition_size",
        "producer_epoch",
        "producer_id",
        "timestamp",
        "total_bytes",
        "transaction_start_time_ms",
        "usable_bytes",
    }
)
#: Whatever is not empty is some, and anything over zero.
_CONTENTS: Final = frozenset(
    {
        "configs",
        "expiry_timestamp",
        "expiry_timestamp_ms",
        "hmac",
        "issue_timestamp",
        "issue_timestamp_ms",
        "max_timestamp",
        "max_timestamp_ms",
        "records",
        "session_id",
        "session_lifetime_ms",
        "token_id",
    }
)
#: Their elements are found by their place.
_IN_ORDER: Final = frozenset({"filter_results"})
_NAMES: Final = ("name", "topic", "topic_name", "group_id", "transactional_id")
#: Whose text is the same, word by word.
_SAID_ALIKE: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
#: Where it counts whether there is a text. Apache Kafka's controller puts the request itself into it.
_SAID_SOMEHOW: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
_REQUEST: Final = re.compile(r"Request\(.*\)")


def told(answer: Message, version: int, name_of: Callable[[UUID], str | None], *, is_list: bool = False) -> Told:
    """``is_list``: it is about whatever there is, of which only what lasts counts."""
    return _Teller(version, name_of, is_list=is_list).message(answer)


def comparable(outcome: Any) -> Any:
    """Without the words of errors that each says in its own way."""
    if isinstance(outcome, list):
        return [comparable(each) for each in outcome]
    if not isinstance(outcome, Mapping):
        return outcome
    code = outcome.get("error_code", 0)
    kept = {key: comparable(value) for key, value in outcome.items()}
    if "error_message" not in kept or code in _SAID_ALIKE:
        return kept
    text = kept.pop("error_message")
    return kept | {"error_message": "some" if text else text} if code in _SAID_SOMEHOW else kept


class _Teller:
    def __init__(self, version: int, name_of: Callable[[UUID], str | None], *, is_list: bool) -> None:
        self._version = version
        self._name_of = name_of
        self._is_list = is_list

    def message(self, message: Message) -> Told:
        plain = type(message)()
        said: Told = {}
        for field in fields_of(type(message)):
            if self._version not in field.versions or field.name in _LEFT_OUT:
                continue
            value = getattr(message, field.name)
            if field.name in _POSITIONS:
                said[field.name] = _position(value)
            elif field.name in _CONTENTS:
                said[field.name] = _content(value)
            elif not _is_same(value, getattr(plain, field.name)):
                said[field.name] = self._value(field.name, value)
        return said

    def _value(self, name: str, value: Any) -> Any:
        match value:
            case Message():
                return self.message(value)
            case UUID():
                known = self._name_of(value)
                return "some id" if known is None else f"id of {without_numbers(known)}"
            case str():
                return _REQUEST.sub("Request(...)", without_numbers(value))
            case bytes() | memoryview():
                return "some"
            case Sequence():
                return self._array(name, value)
            case _:
                return value

    def _array(self, name: str, values: Sequence[Any]) -> list[Any]:
        kept = [value for value in values if not self._is_list or _lasts(value)]
        elements = [self._value(name, value) for value in kept]
        if name in _IN_ORDER:
            return elements
        elements.sort(key=json.dumps)
        if not self._is_list:
            return elements
        return [each for number, each in enumerate(elements) if each not in elements[:number]]


def _is_same(value: Any, default: Any) -> bool:
    if isinstance(value, list | tuple):
        return isinstance(default, list | tuple) and not value and not default
    return bool(value == default)


def _position(value: Any) -> Any:
    if isinstance(value, int):
        return value if value < 0 else "some"
    return "some" if value else "none"


def _content(value: Any) -> Any:
    if isinstance(value, int):
        return min(value, 0) or ("some" if value else 0)
    return "some" if value else "none"


def _lasts(element: Any) -> bool:
    names = [getattr(element, name, None) for name in _NAMES]
    return not any(names) or any(name in LASTING for name in names)
