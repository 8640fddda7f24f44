"""Reads a YAML config file into a struct, and says in one sentence what is wrong with it.

``${NAME}`` in a text value stands for an environment variable, ``${file:/path}`` for what a file holds, ``$${`` for the
two characters themselves. It is filled in after the YAML is read, so what is referred to can never become a key.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from quorate.backup.errors import ConfigError
from quorate.kernel.decoding import convert
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import parse_size, wrong_choice
from quorate.security.properties import JAAS_KEY, login_module_value

Config = TypeVar("Config", bound=msgspec.Struct)

#: Far more than the settings of any command have. With aliases a few lines can stand for billions of values.
_MAX_VALUES = 100_000
_MAX_DEPTH = 50
_TOO_DEEP = f"it is nested more than {_MAX_DEPTH} levels deep"

_FILE = "file:"
_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")


def read_config(text: str, environment: Mapping[str, str], file_name: str, kind: type[Config]) -> Config:
    """``file_name`` is for the error: a ``ConfigError`` that names it and the key."""
    try:
        tree = yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file_name}: {_yaml_problem(error)}") from None
    except RecursionError:
        raise ConfigError(f"{file_name}: {_TOO_DEEP}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{file_name}: it holds no settings")
    try:
        _require_bounded(tree)
        tree = _with_sizes(_fill_in(tree, environment, ""), "")
        _check(tree, msgspec.inspect.type_info(kind), "")
        return convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file_name}: {_conversion_problem(error)}") from None
    except _Fault as error:
        raise ConfigError(f"{file_name}: {error}") from None


class _Fault(ValueError):
    pass


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a key that is given twice: YAML itself would silently take the second."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """A value that looks like a date or a number and is none, ``2026-13-01`` say, is told with its place."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _require_bounded(tree: object) -> None:
    left = [(tree, 0)]
    count = 0
    while left:
        value, depth = left.pop()
        count += 1
        if count > _MAX_VALUES:
            raise _Fault(f"it holds more than {_MAX_VALUES} values")
        if depth > _MAX_DEPTH:
            raise _Fault(_TOO_DEEP)
        if isinstance(value, dict | list):
            below = value.values() if isinstance(value, dict) else value
            left.extend((each, depth + 1) for each in below)


def _fill_in(value: Any, environment: Mapping[str, str], path: str) -> Any:
    match value:
        case dict():
            return {key: _fill_in(each, environment, _below(path, str(key))) for key, each in value.items()}
        case list():
            return [_fill_in(each, environment, f"{path}[{index}]") for index, each in enumerate(value)]
        case str():
            return _VARIABLE.sub(lambda match: _variable(match, environment, path), value)
        case _:
            return value


def _variable(match: re.Match[str], environment: Mapping[str, str], path: str) -> str:
    name = match[1]
    if name is None:
        return "${"
    found = _read_file(name.removeprefix(_FILE), path) if name.startswith(_FILE) else environment.get(name)
    if found is None:
        raise _Fault(f"{path} asks for the environment variable {name!r}, which is not set")
    if path.endswith(JAAS_KEY) and match[0] != match.string.strip():
        return login_module_value(found, is_bare=match.string[: match.start()].endswith("="))
    return found


def _read_file(name: str, path: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _Fault(f"{path}: {name} cannot be read: {getattr(error, 'strerror', 'it is no text')}") from None


def _with_sizes(value: Any, path: str) -> Any:
    """Settings in bytes may have a unit."""
    if not isinstance(value, dict):
        return value
    return {key: _with_size(each, str(key), _below(path, str(key))) for key, each in value.items()}


def _with_size(value: Any, key: str, path: str) -> Any:
    if not (isinstance(value, str) and key.endswith(("_bytes", "_bytes_per_second"))):
        return _with_sizes(value, path)
    try:
        return parse_size(value)
    except QuorateError as error:
        raise _Fault(f"{path}: {error}") from None


def _check(value: Any, kind: msgspec.inspect.Type, path: str) -> None:
    """Every key in the tree is one that the struct has, and every word is one of those that may be chosen."""
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    for each in kinds:
        if isinstance(each, msgspec.inspect.StructType) and isinstance(value, dict):
            _check_keys(value, each, path)
    problem = wrong_choice(value, kind)
    if problem is not None:
        raise _Fault(f"{path}: {problem}")


def _check_keys(tree: dict[Any, Any], kind: msgspec.inspect.StructType, path: str) -> None:
    fields = {field.encode_name: field.type for field in kind.fields}
    for key, value in tree.items():
        if key not in fields:
            raise _Fault(_unknown_key(_below(path, str(key)), str(key), list(fields)))
        _check(value, fields[key], _below(path, str(key)))


def _unknown_key(path: str, key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known here are {', '.join(sorted(known))}"
    return f"unknown key {path!r}; {hint}"


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _conversion_problem(error: msgspec.ValidationError) -> str:
    """msgspec says ``Expected `int`, got `str` - at `$.backup.mode```."""
    fault, _, place = str(error).rpartition(" - at ")
    if not fault:
        return str(error)
    return f"{place.strip('`').removeprefix('$').removeprefix('.')}: {fault}"


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return f"{place}{getattr(error, 'problem', None) or 'it is not YAML'}"
