"""The id of a cluster, in the form that Kafka's tools know."""

from base64 import urlsafe_b64encode
from uuid import UUID


def new_cluster_id(uuid: UUID) -> str:
    """As Kafka writes ids: URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()
