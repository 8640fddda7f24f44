"""Which version of each API to use with a broker: the highest that both sides know."""

from collections.abc import Mapping
from typing import Final

from quorate.client.errors import UnsupportedApi
from quorate.kernel.address import Address
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.schema import Request

#: What is asked first; where it fails, on a new connection, what is asked next. Version 3 is flexible and carries the
#: client's name; some brokers close the connection, or answer nonsense, when they do not know it.
API_VERSIONS_ATTEMPTS: Final = (3, 2, 0)


class BrokerVersions:
    """The versions that one broker said it speaks."""

    def __init__(self, address: Address, spans: Mapping[int, tuple[int, int]]) -> None:
        self._address = address
        self._spans = spans

    def choose(self, request_type: type[Request], *, floor: int = 0, ceiling: int | None = None) -> int:
        """The highest common version from floor to ceiling. Raises ``UnsupportedApi`` where there is none."""
        api = find_api(request_type.API_KEY)
        assert api is not None
        if request_type.API_KEY not in self._spans:
            raise UnsupportedApi(self._address, f"does not support {api.name}")
        broker_min, broker_max = self._spans[request_type.API_KEY]
        # The newest version of an API may still change while Kafka calls it unstable.
        own_max = request_type.MAX_VERSION - (1 if api.latest_unstable else 0)
        if ceiling is not None:
            own_max = min(own_max, ceiling)
        own_min = max(request_type.MIN_VERSION, floor)
        version = min(broker_max, own_max)
        if version < max(broker_min, own_min):
            own_span = f"{own_min} to {own_max}"
            message = f"supports {api.name} {broker_min} to {broker_max}, and {own_span} is needed"
            raise UnsupportedApi(self._address, message)
        return version

    def supports(self, request_type: type[Request], *, at_least: int = 0) -> bool:
        try:
            return self.choose(request_type) >= at_least
        except UnsupportedApi:
            return False


def read_versions(address: Address, answer: ApiVersionsResponse) -> BrokerVersions:
    return BrokerVersions(address, {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys})


def before_negotiation(address: Address) -> BrokerVersions:
    """Only ApiVersions can be asked of a broker of which nothing is known."""
    return BrokerVersions(address, {int(ApiKey.API_VERSIONS): (0, max(API_VERSIONS_ATTEMPTS))})
