"""The table of APIs agrees with the classes, and loads them only when they are asked for."""

import subprocess
import sys

import pytest

from quorate.protocol.apis import APIS, ApiDefinition, ApiKey, find_api
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse
from quorate.protocol.schema import NEVER_FLEXIBLE


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_table_agrees_with_the_classes(api: ApiDefinition) -> None:
    for message_type, kind in ((api.request_type, "Request"), (api.response_type, "Response")):
        assert message_type.__name__ == api.name + kind
        assert api.key == message_type.API_KEY
        assert (api.min_version, api.max_version) == (message_type.MIN_VERSION, message_type.MAX_VERSION)
        assert api.flexible_from == message_type.FLEXIBLE_FROM
        assert api.latest_unstable == message_type.LATEST_UNSTABLE


def test_known_apis() -> None:
    fetch = APIS[ApiKey.FETCH]

    assert (fetch.min_version, fetch.max_version, fetch.flexible_from) == (4, 18, 12)
    assert (fetch.request_type, fetch.response_type) == (FetchRequest, FetchResponse)
    assert APIS[ApiKey.SASL_HANDSHAKE].flexible_from == NEVER_FLEXIBLE
    assert APIS[ApiKey.PRODUCE].min_version == 0
    assert [api.name for api in APIS.values() if api.latest_unstable] == ["InitProducerId"]


def test_unknown_key_finds_nothing() -> None:
    assert find_api(-1) is None
    assert find_api(4) is None  # LeaderAndIsr is gone since Kafka 4.0.
    assert find_api(18) is APIS[ApiKey.API_VERSIONS]


def test_messages_are_imported_when_first_asked_for() -> None:
    program = (
        "import sys; from quorate.protocol import apis, frames;"
        "loaded = lambda: {name for name in sys.modules if name.startswith('quorate.protocol.messages.')};"
        "before = loaded(); apis.APIS[apis.ApiKey.HEARTBEAT].request_type; "
        "print(*sorted(before), '|', *(loaded() - before))"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == ["quorate.protocol.messages.api_table", "|", "quorate.protocol.messages.heartbeat"]
