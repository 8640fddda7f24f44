"""Configs on the command line: ``NAME=VALUE``, once for each."""

from collections.abc import Iterable

from quorate.kernel.errors import QuorateError


def parse_configs(given: Iterable[str] | None, option: str = "--config") -> dict[str, str]:
    configs = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise QuorateError(f"{option} {text!r} is not of the form NAME=VALUE")
        configs[name.strip()] = value
    return configs
