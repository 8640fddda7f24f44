"""The compatibility page says what the node advertises, no more and no less."""

import re
from pathlib import Path

from quorate.broker.handlers import APIS
from quorate.metadata.core.topic_configs import TOPIC_CONFIGS
from quorate.protocol.apis import find_api

PAGE = Path(__file__).parents[3] / "docs/compatibility.md"


def test_the_table_of_apis_is_what_is_served() -> None:
    documented = dict(re.findall(r"^\| (\w+) \| ([\d-]+) \|", PAGE.read_text(), re.MULTILINE))
    served = {}
    for key, api in APIS.items():
        described = find_api(key)
        assert described is not None
        span = f"{api.min_version}-{api.max_version}"
        served[described.name] = span if api.min_version != api.max_version else str(api.min_version)
    assert documented == served


def test_every_topic_config_is_accounted_for() -> None:
    section = PAGE.read_text().split("## Topic configs")[1].split("## ")[0]
    named = set(re.findall(r"`([a-z.]+)`", section))
    unnamed = {name for name in TOPIC_CONFIGS if name not in named and "throttled" not in name}
    assert unnamed == set()
