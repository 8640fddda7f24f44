"""The Kafka APIs: handlers in one module for each family, and ``APIS``, the list of all that a node serves.

A handler has the name of its API. One that never waits is a function that returns the response, one that waits is a
coroutine function; where most requests need not wait and it matters (Produce, Fetch, Metadata, ListOffsets), a function
returns either. Each module ends with what it declares of its APIs: request, versions, handler, and how a large request
is cut.
"""

from quorate.broker.api import Api
from quorate.broker.handlers import (
    api_versions,
    committed_offsets,
    configs,
    delegation_tokens,
    fetch,
    group_membership,
    groups,
    log_offsets,
    metadata,
    produce,
    quorum_members,
    replicas,
    security,
    topics,
    transaction_reports,
    transactions,
)

_LISTED = (
    # Records
    produce.PRODUCE,
    fetch.FETCH,
    log_offsets.LIST_OFFSETS,
    log_offsets.OFFSET_FOR_LEADER_EPOCH,
    log_offsets.DELETE_RECORDS,
    # The cluster, its topics and configs
    metadata.METADATA,
    metadata.DESCRIBE_CLUSTER,
    metadata.DESCRIBE_TOPIC_PARTITIONS,
    topics.CREATE_TOPICS,
    topics.CREATE_PARTITIONS,
    topics.DELETE_TOPICS,
    configs.ALTER_CONFIGS,
    configs.INCREMENTAL_ALTER_CONFIGS,
    configs.DESCRIBE_CONFIGS,
    configs.ALTER_CLIENT_QUOTAS,
    configs.DESCRIBE_CLIENT_QUOTAS,
    # Security
    security.DESCRIBE_ACLS,
    security.CREATE_ACLS,
    security.DELETE_ACLS,
    security.DESCRIBE_USER_SCRAM_CREDENTIALS,
    security.ALTER_USER_SCRAM_CREDENTIALS,
    delegation_tokens.CREATE_DELEGATION_TOKEN,
    delegation_tokens.RENEW_DELEGATION_TOKEN,
    delegation_tokens.EXPIRE_DELEGATION_TOKEN,
    delegation_tokens.DESCRIBE_DELEGATION_TOKEN,
    security.SASL_HANDSHAKE,
    security.SASL_AUTHENTICATE,
    # Nodes and replicas
    replicas.ALTER_PARTITION_REASSIGNMENTS,
    replicas.LIST_PARTITION_REASSIGNMENTS,
    replicas.ELECT_LEADERS,
    replicas.DESCRIBE_LOG_DIRS,
    replicas.ALTER_REPLICA_LOG_DIRS,
    quorum_members.ADD_RAFT_VOTER,
    quorum_members.REMOVE_RAFT_VOTER,
    quorum_members.UNREGISTER_BROKER,
    quorum_members.DESCRIBE_QUORUM,
    # Groups
    groups.FIND_COORDINATOR,
    group_membership.JOIN_GROUP,
    group_membership.SYNC_GROUP,
    group_membership.HEARTBEAT,
    group_membership.LEAVE_GROUP,
    group_membership.CONSUMER_GROUP_HEARTBEAT,
    groups.LIST_GROUPS,
    groups.DESCRIBE_GROUPS,
    groups.CONSUMER_GROUP_DESCRIBE,
    groups.DELETE_GROUPS,
    committed_offsets.OFFSET_COMMIT,
    committed_offsets.TXN_OFFSET_COMMIT,
    committed_offsets.OFFSET_FETCH,
    committed_offsets.OFFSET_DELETE,
    # Transactions
    transactions.INIT_PRODUCER_ID,
    transactions.ADD_PARTITIONS_TO_TXN,
    transactions.ADD_OFFSETS_TO_TXN,
    transactions.END_TXN,
    transactions.WRITE_TXN_MARKERS,
    transaction_reports.LIST_TRANSACTIONS,
    transaction_reports.DESCRIBE_TRANSACTIONS,
    transaction_reports.DESCRIBE_PRODUCERS,
)

#: By their keys.
APIS: dict[int, Api] = {api.request.API_KEY: api for api in (*_LISTED, api_versions.listing(_LISTED))}
