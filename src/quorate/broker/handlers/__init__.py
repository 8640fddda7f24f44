"""The Kafka APIs, one module each. A module declares what it serves in ``API``; the table here is made of those."""

from quorate.broker.api import Api
from quorate.broker.handlers import (
    api_versions,
    fetch,
    metadata,
    produce,
)

_MODULES = (
    api_versions,
    fetch,
    metadata,
    produce,
)

APIS: dict[int, Api] = {module.API.request.API_KEY: module.API for module in _MODULES}
