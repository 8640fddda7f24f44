"""The APIs of a node with an authorizer: each request is judged before its handler sees it.

A handler gets what its sender may have, and nothing of the rest: that is answered here, whether it exists or not. What
only the handler knows the names of, it asks ``RequestContext.access`` about.

How the answer of each API says what its sender may not do is Apache Kafka's. A whole answer is refused by its own error
code, where it has one, or else by one for each thing that the request names. A refused element of a request has an
element in the answer: the same names, and the error.
"""

from collections.abc import Awaitable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from quorate.broker.access_control import AccessControl
from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_access import RequestAccess
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import TopicId, TopicName
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.messages.alter_client_quotas import ResponseEntityData, ResponseEntryData
from quorate.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirTopicResult,
)
from quorate.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResult
from quorate.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResult
from quorate.protocol.schema import Message, Request, Response, fields_of
from quorate.security.acls import AclResourceType
from quorate.security.api_rules import API_RULES, NAMES_OF_TOPICS_TO_DELETE, AclAsk, RefusalPlace
from quorate.transport.connection import CloseConnection

#: Of configs: whatever is not a topic's or a group's is the cluster's.
_TYPES_OF_CONFIGS: Final = {2: AclResourceType.TOPIC, 32: AclResourceType.GROUP}

_OF_CONFIGS: Final = (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)

#: The refused elements of an answer, by its arrays.
_Refused = dict[str, list[Any]]

_TEXTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
#: The fields that say what an element is about, where request and answer have both.
_IDENTITY: Final = frozenset(
    {
        "group_id",
        "index",
        "name",
        "partition",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
    }
)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_NULL_PROTOCOL_FROM: Final = 7


def guarded(apis: Mapping[int, Api], control: AccessControl) -> dict[int, Api]:
    return {
        api_key: msgspec.structs.replace(api, handle=partial(_handle, control, api)) for api_key, api in apis.items()
    }


def _handle(
    control: AccessControl, api: Api, services: Services, context: RequestContext, request: Request
) -> HandlerResult:
    access = control.examine(context, request)
    if access.refusal is not None:
        _end_where_nobody_listens(request)
        return refused_answer(request, context.api_version, access.refusal)
    context = msgspec.structs.replace(context, access=control.access_of(context, request, access))
    if not access.denied:
        return api.handle(services, context, request)
    allowed, refused = _split(services.metadata.image, context, request)
    if refused:
        _end_where_nobody_listens(request)
    if allowed is None:
        return response_type(request.API_KEY)(**refused)
    if request.API_KEY == ApiKey.METADATA and context.api_version == 0:
        context = msgspec.structs.replace(context, api_version=1)  # There, no name at all does not ask for all topics.
    result = api.handle(services, context, allowed)
    if not refused:
        return result
    if isinstance(result, Response):
        return _with(result, refused)
    return _later(cast(Awaitable[Response | None], result), refused)


async def _later(result: Awaitable[Response | None], refused: _Refused) -> Response | None:
    response = await result
    return None if response is None else _with(response, refused)


def _with(response: Response, refused: _Refused) -> Response:
    if getattr(response, "error_code", 0):
        return response
    return msgspec.structs.replace(
        response, **{array: [*getattr(response, array), *elements] for array, elements in refused.items()}
    )


def _end_where_nobody_listens(request: Any) -> None:
    """A producer that wants no answers learns of a refusal by the end of its connection, as with Apache Kafka."""
    if request.API_KEY == ApiKey.PRODUCE and request.acks == 0:
        raise CloseConnection("a producer without acks may not write there")


def _split(image: MetadataImage, context: RequestContext, request: Request) -> tuple[Request | None, _Refused]:
    """The request without what is refused, and what the answer says of that; None where nothing is to be done."""
    refused: _Refused = {}
    for ask in API_RULES[ApiKey(request.API_KEY)]:
        mirror = _mirror(ask, context, request)
        if mirror is None:
            continue
        array = mirror.of[0]
        kept: list[Any] = []
        gone: list[Any] = []
        for element in getattr(request, array) or ():
            (gone if _is_refused(image, context.access, ask, request, element) else kept).append(element)
        if not gone:
            continue
        answers = refused.setdefault(mirror.into[0], [])
        answers += refused_elements(request.API_KEY, mirror, gone, ask.error_code)
        if mirror.all_or_nothing:
            here = [element for element in kept if element.name in image.topics]
            gone = [element for element in kept if element.name not in image.topics]
            answers += refused_elements(request.API_KEY, mirror, here, ErrorCode.OPERATION_NOT_ATTEMPTED)
            answers += refused_elements(request.API_KEY, mirror, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return None, refused
        if request.API_KEY == ApiKey.DESCRIBE_TOPIC_PARTITIONS and not kept:
            return None, refused  # There, no name at all asks for all topics.
        request = msgspec.structs.replace(request, **{array: kept})
    if request.API_KEY == ApiKey.DELETE_TOPICS and refused:
        refused["responses"] = [_perhaps_named(image, context.access, answer) for answer in refused["responses"]]
    return request, refused


def _mirror(ask: AclAsk, context: RequestContext, request: Request) -> "Mirror | None":
    """Where the elements go that an ask refuses; None where it refuses none, or their names are deeper in them."""
    if ask.refusal is not RefusalPlace.ELEMENT or ask.from_state:
        return None
    if not ask.first_version <= context.api_version <= ask.last_version:
        return None
    array, _, deeper = ask.names.partition(".")
    if request.API_KEY in _OF_CONFIGS:
        array = "resources"
    return None if not array or "." in deeper else mirror_of(request.API_KEY, array)


def _is_refused(image: MetadataImage, access: RequestAccess, ask: AclAsk, request: Request, element: Any) -> bool:
    if hasattr(element, "resource_type"):
        if _TYPES_OF_CONFIGS.get(element.resource_type, AclResourceType.CLUSTER) is not ask.resource_type:
            return False
        if ask.resource_type is AclResourceType.CLUSTER:
            return not access.named.may(ask.operation, ask.resource_type)
    value = element if isinstance(element, str) else getattr(element, ask.names.rpartition(".")[2])
    name = image.topic_names.get(TopicId(value)) if isinstance(value, UUID) else value
    if name is None or access.named.may(ask.operation, ask.resource_type, name):
        return False
    # Who may see that a topic is missing is told so.
    is_known_to_be_missing = (
        request.API_KEY == ApiKey.DELETE_TOPICS
        and TopicName(name) not in image.topics
        and access.may(NAMES_OF_TOPICS_TO_DELETE, name)
    )
    return not is_known_to_be_missing


def _perhaps_named(image: MetadataImage, access: RequestAccess, answer: Any) -> Any:
    """A topic that was to be deleted by its id is named to those who may describe it."""
    name = image.topic_names.get(answer.topic_id)
    if answer.name is not None or name is None or not access.may(NAMES_OF_TOPICS_TO_DELETE, name):
        return answer
    return msgspec.structs.replace(answer, name=name)


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """An array of the request, and the one of the answer that has an element for each of its elements."""

    #: From the outermost on, as ``("topics", "partitions")``.
    of: tuple[str, ...]
    into: tuple[str, ...]
    #: The field of the answer for an innermost element that is a plain name or number.
    plain: str = ""
    #: Empty where an element has no room for one.
    error: str = "error_code"
    #: The text of a refused element, where it has room for one; None for the usual one.
    text: str | None = ""
    #: The same where the whole request is refused; None for the usual one.
    text_of_all: str | None = ""
    #: Other fields of what carries the error.
    beside: Mapping[str, Any] = _NOTHING
    #: Whether an answer that has an error code of its own has these elements as well.
    is_told_twice: bool = False
    #: Where one element is refused, nothing is done, and the others are told so.
    all_or_nothing: bool = False


class Refusals(msgspec.Struct, frozen=True, kw_only=True):
    mirrors: tuple[Mirror, ...] = ()
    #: Other fields of an answer that is refused as a whole.
    beside: Mapping[str, Any] = _NOTHING


def _topics(**others: Any) -> Refusals:
    return Refusals(mirrors=(Mirror(of=("topics", "partitions"), into=("topics", "partitions"), **others),))


def _flat(of: str, into: str, plain: str = "", **others: Any) -> Mirror:
    return Mirror(of=(of,), into=(into,), plain=plain, **others)


_NO_NODE: Final = {"node_id": -1, "port": -1}

_REFUSALS: Final[Mapping[ApiKey, Refusals]] = {
    ApiKey.PRODUCE: Refusals(
        mirrors=(
            Mirror(
                of=("topic_data", "partition_data"),
                into=("responses", "partition_responses"),
                beside={"base_offset": -1},
            ),
        )
    ),
    ApiKey.LIST_OFFSETS: _topics(),
    ApiKey.METADATA: Refusals(mirrors=(_flat("topics", "topics"),)),
    ApiKey.OFFSET_COMMIT: _topics(),
    ApiKey.OFFSET_FETCH: Refusals(
        mirrors=(
            Mirror(
                of=("topics", "partition_indexes"),
                into=("topics", "partitions"),
                plain="partition_index",
                beside={"committed_offset": -1},
            ),
            _flat("groups", "groups"),
        )
    ),
    ApiKey.FIND_COORDINATOR: Refusals(
        mirrors=(_flat("coordinator_keys", "coordinators", "key", text_of_all=None, beside=_NO_NODE),), beside=_NO_NODE
    ),
    ApiKey.DESCRIBE_GROUPS: Refusals(mirrors=(_flat("groups", "groups", "group_id"),)),
    ApiKey.CREATE_TOPICS: Refusals(mirrors=(_flat("topics", "topics", text="Authorization failed."),)),
    ApiKey.DELETE_TOPICS: Refusals(
        mirrors=(
            _flat("topic_names", "responses", "name", text=None),
            _flat("topics", "responses", text=None),
        )
    ),
    ApiKey.DELETE_RECORDS: _topics(beside={"low_watermark": -1}),
    ApiKey.INIT_PRODUCER_ID: Refusals(beside={"producer_epoch": -1}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics(),
    ApiKey.ADD_PARTITIONS_TO_TXN: Refusals(
        mirrors=(
            Mirror(
                of=("v3_and_below_topics", "partitions"),
                into=("results_by_topic_v3_and_below", "results_by_partition"),
                plain="partition_index",
                error="partition_error_code",
                all_or_nothing=True,
            ),
        )
    ),
    ApiKey.WRITE_TXN_MARKERS: Refusals(
        mirrors=(
            Mirror(
                of=("markers", "topics", "partition_indexes"),
                into=("markers", "topics", "partitions"),
                plain="partition_index",
            ),
        )
    ),
    ApiKey.TXN_OFFSET_COMMIT: _topics(),
    ApiKey.CREATE_ACLS: Refusals(mirrors=(_flat("creations", "results", text=None),)),
    ApiKey.DELETE_ACLS: Refusals(mirrors=(_flat("filters", "filter_results", text=None),)),
    ApiKey.DESCRIBE_CONFIGS: Refusals(mirrors=(_flat("resources", "results", text=None),)),
    ApiKey.ALTER_CONFIGS: Refusals(mirrors=(_flat("resources", "responses", text=None),)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Refusals(mirrors=(_flat("resources", "responses", text=None),)),
    ApiKey.CREATE_PARTITIONS: Refusals(mirrors=(_flat("topics", "results"),)),
    ApiKey.DELETE_GROUPS: Refusals(mirrors=(_flat("groups_names", "results", "group_id"),)),
    ApiKey.ELECT_LEADERS: Refusals(
        mirrors=(
            Mirror(
                of=("topic_partitions", "partitions"),
                into=("replica_election_results", "partition_result"),
                plain="partition_id",
                text=None,
                is_told_twice=True,
            ),
        )
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Refusals(
        mirrors=(
            Mirror(
                of=("topics", "partitions"),
                into=("responses", "partitions"),
                text=None,
                is_told_twice=True,
            ),
        )
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Refusals(
        mirrors=(
            Mirror(
                of=("topics", "partition_indexes"),
                into=("topics", "partitions"),
                plain="partition_index",
                error="",
                is_told_twice=True,
            ),
        )
    ),
    ApiKey.OFFSET_DELETE: _topics(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Refusals(beside={"entries": None, "error_message": None}),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Refusals(beside={"error_message": None}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Refusals(beside={"error_message": None}),
    ApiKey.DESCRIBE_PRODUCERS: Refusals(
        mirrors=(
            Mirror(
                of=("topics", "partition_indexes"), into=("topics", "partitions"), plain="partition_index", text=None
            ),
        )
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Refusals(
        mirrors=(_flat("transactional_ids", "transaction_states", "transactional_id"),)
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Refusals(mirrors=(_flat("group_ids", "groups", "group_id"),)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Refusals(mirrors=(_flat("topics", "topics"),)),
}
_NO_MIRRORS: Final = Refusals()


def mirror_of(api_key: int, array: str) -> Mirror | None:
    """Where the refused elements of an array of the request go; None where the handler sees to it."""
    refusals = _REFUSALS.get(ApiKey(api_key), _NO_MIRRORS)
    return next((mirror for mirror in refusals.mirrors if mirror.of[0] == array), None)


def refused_answer(request: Request, version: int, code: ErrorCode) -> Response:
    """The answer to a request that is refused as a whole."""
    answer_type = response_type(request.API_KEY)
    refusals = _REFUSALS.get(ApiKey(request.API_KEY), _NO_MIRRORS)
    fields: dict[str, Any] = _special(request, version, code)
    has_own_code = _has_field(answer_type, "error_code", version)
    if has_own_code:
        fields["error_code"] = code
        if _has_field(answer_type, "error_message", version):
            fields["error_message"] = _TEXTS[code]
        fields |= refusals.beside
    for mirror in refusals.mirrors:
        elements = getattr(request, mirror.of[0])
        if elements and (mirror.is_told_twice or not has_own_code):
            text = mirror.text if mirror.text is None else mirror.text_of_all
            whole = msgspec.structs.replace(mirror, text=text)
            fields[mirror.into[0]] = refused_elements(request.API_KEY, whole, elements, code)
    return answer_type(**fields)


def refused_elements(api_key: int, mirror: Mirror, elements: Sequence[Any], code: ErrorCode) -> list[Any]:
    """What the answer says of elements of the request that are refused."""
    element_type = _element_type(response_type(api_key), mirror.into[0])
    return [_mirrored(mirror, element, element_type, 1, code) for element in elements]


def _mirrored(mirror: Mirror, element: Any, element_type: type[Message], level: int, code: ErrorCode) -> Message:
    fields: dict[str, Any]
    if isinstance(element, msgspec.Struct):
        names = _shared_identity(type(element), element_type)
        fields = {name: getattr(element, name) for name in names}
    else:
        fields = {mirror.plain: element}
    if level < len(mirror.into):
        inner_type = _element_type(element_type, mirror.into[level])
        inner = getattr(element, mirror.of[level])
        fields[mirror.into[level]] = [_mirrored(mirror, each, inner_type, level + 1, code) for each in inner]
        return element_type(**fields)
    if mirror.error:
        fields[mirror.error] = code
    text = _TEXTS.get(code) if mirror.text is None else mirror.text
    if text and "error_message" in element_type.__struct_fields__:
        fields["error_message"] = text
    return element_type(**fields, **mirror.beside)


def _special(request: Any, version: int, code: ErrorCode) -> dict[str, Any]:
    """Answers that are laid out unlike their requests."""
    match request.API_KEY:
        case ApiKey.JOIN_GROUP if version >= _NULL_PROTOCOL_FROM:
            return {"protocol_name": None}
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            return {
                "results": [
                    AlterReplicaLogDirTopicResult(
                        topic_name=topic.name,
                        partitions=[
                            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for folder in request.dirs
                    for topic in folder.topics
                ]
            }
        case ApiKey.ALTER_CLIENT_QUOTAS:
            return {
                "entries": [
                    ResponseEntryData(
                        error_code=code,
                        error_message=_TEXTS[code],
                        entity=[
                            ResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                            for part in entry.entity
                        ],
                    )
                    for entry in request.entries
                ]
            }
        case ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
            return {
                "results": [
                    # Without their names, as in Apache Kafka.
                    DescribeUserScramCredentialsResult(error_code=code, error_message=None)
                ]
                * len(request.users or ())
            }
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            users = sorted({change.name for change in (*request.deletions, *request.upsertions)})
            return {
                "results": [
                    AlterUserScramCredentialsResult(user=name, error_code=code, error_message=_TEXTS[code])
                    for name in users
                ]
            }
        case _:
            return {}


def response_type(api_key: int) -> type[Response]:
    api = find_api(api_key)
    assert api is not None
    return api.response_type


@cache
def _has_field(message_type: type[Message], name: str, version: int) -> bool:
    return any(field.name == name and version in field.versions for field in fields_of(message_type))


@cache
def _element_type(owner: type[Message], array: str) -> type[Message]:
    [element_type] = [field.type for field in fields_of(owner) if field.name == array]
    assert isinstance(element_type, type)
    return element_type


@cache
def _shared_identity(asked: type[Message], answered: type[Message]) -> tuple[str, ...]:
    return tuple(name for name in asked.__struct_fields__ if name in _IDENTITY and name in answered.__struct_fields__)
