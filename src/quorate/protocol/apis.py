"""All APIs: their keys, versions and message types.

The message types of an API are imported when they are first asked for, so that a node loads only what it serves.
"""

from functools import cached_property
from importlib import import_module
from typing import Final, cast

from quorate.protocol.messages.api_table import API_TABLE, ApiKey
from quorate.protocol.schema import Request, Response

__all__ = ["APIS", "ApiDefinition", "ApiKey", "find_api"]


class ApiDefinition:
    """One API of the protocol, in the versions that the definitions describe."""

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.name, self.min_version, self.max_version, self.flexible_from, self.latest_unstable = API_TABLE[key]

    def has_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    @cached_property
    def request_type(self) -> type[Request]:
        return cast(type[Request], self._message_type("Request"))

    @cached_property
    def response_type(self) -> type[Response]:
        return cast(type[Response], self._message_type("Response"))

    def _message_type(self, kind: str) -> object:
        module = import_module(f"quorate.protocol.messages.{self.key.name.lower()}")
        return getattr(module, self.name + kind)


APIS: Final[dict[ApiKey, ApiDefinition]] = {key: ApiDefinition(key) for key in API_TABLE}
_BY_NUMBER: Final[dict[int, ApiDefinition]] = {int(key): api for key, api in APIS.items()}


def find_api(key: int) -> ApiDefinition | None:
    """The API with this key; None where there is none."""
    return _BY_NUMBER.get(key)
