"""ListPartitionReassignments, version 0: what is under way, as the image has it."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.metadata.core.commands import PartitionName
from quorate.metadata.core.replica_changes import list_reassignments
from quorate.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest) -> HandlerResult:
    wanted = None
    if request.topics is not None:
        wanted = [
            PartitionName(TopicName(topic.name), PartitionIndex(index))
            for topic in request.topics
            for index in topic.partition_indexes
        ]
    by_topic: dict[TopicName, list[OngoingPartitionReassignment]] = {}
    for name, state in list_reassignments(services.metadata.image, wanted):
        by_topic.setdefault(name.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=state.replicas,
                adding_replicas=state.adding_replicas,
                removing_replicas=state.removing_replicas,
            )
        )
    topics = [OngoingTopicReassignment(name=name, partitions=ongoing) for name, ongoing in by_topic.items()]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


API = Api(request=ListPartitionReassignmentsRequest, min_version=0, max_version=0, handle=handle)
