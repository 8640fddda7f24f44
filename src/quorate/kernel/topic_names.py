"""The rules for topic names, and the topics that the cluster keeps for itself."""

import re

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import TopicName

CONSUMER_OFFSETS = TopicName("__consumer_offsets")
TRANSACTION_STATE = TopicName("__transaction_state")
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
#: Names the metadata log where clients ask about the quorum. No topic can have it.
CLUSTER_METADATA = TopicName("__cluster_metadata")

_MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> TopicName:
    """The name as a TopicName, or INVALID_TOPIC_EXCEPTION with the rule that it breaks."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in {".", ".."}:
        reason = "'.' or '..' is not allowed"
    elif len(name) > _MAX_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {_MAX_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return TopicName(name)
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def is_reserved(name: str) -> bool:
    """Whether the name is legal but stands for something that is not a topic."""
    return name == CLUSTER_METADATA


def check_new_topic_name(name: str) -> TopicName:
    """The name as that of a topic which may be created. A reserved one is refused as Apache Kafka refuses it."""
    if is_reserved(name):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"The name {name} is reserved for the cluster's metadata log: choose another one.",
        )
    return check_topic_name(name)


def collision_key(name: str) -> str:
    """Names with one key clash in metric names, where '.' and '_' are the same."""
    return name.replace(".", "_")


def can_collide(name: str) -> bool:
    """Whether another name can have the same collision key."""
    return "." in name or "_" in name
