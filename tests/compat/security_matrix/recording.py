"""What Apache Kafka said, in a file of the repository: a line for each outcome, and who gets it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.compat.security_matrix.matrix import Cell

PATH: Final = Path(__file__).with_name("apache_kafka_said.json")
#: Whoever is not named with another outcome of the same request.
OTHERS: Final = "the others"

#: By request, and by who sends it.
Outcomes = dict[str, dict[str, Any]]


def gathered(outcomes: Iterable[tuple[Cell, Any]]) -> Outcomes:
    found: Outcomes = {}
    for cell, outcome in outcomes:
        found.setdefault(cell.request_name, {})[cell.condition.name] = outcome
    return found


def write(path: Path, parts: Mapping[str, Outcomes], **about: Any) -> None:
    """``parts`` are what was asked of differently set up nodes."""
    lines = [f"{_text(key)}: {_text(value)}" for key, value in about.items()]
    lines += [f"{_text(name)}: {_part(outcomes)}" for name, outcomes in parts.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path, part: str) -> Outcomes:
    recorded = json.loads(path.read_text())[part]
    return {request: _spread(rows) for request, rows in recorded.items()}


def about(path: Path, key: str) -> Any:
    return json.loads(path.read_text())[key]


def _part(outcomes: Outcomes) -> str:
    blocks = []
    for request, by_condition in outcomes.items():
        rows = _grouped(by_condition)
        blocks.append(f" {_text(request)}: [\n" + ",\n".join(f"  {_text(row)}" for row in rows) + "\n ]")
    return "{\n" + ",\n".join(blocks) + "\n}"


def _grouped(by_condition: Mapping[str, Any]) -> list[list[Any]]:
    groups: dict[str, list[str]] = {}
    for condition, outcome in by_condition.items():
        groups.setdefault(_text(outcome), []).append(condition)
    rows = sorted(groups.items(), key=lambda row: len(row[1]), reverse=True)
    return [[names, json.loads(outcome)] for outcome, names in rows]


def _spread(rows: list[list[Any]]) -> dict[str, Any]:
    return {condition: outcome for names, outcome in rows for condition in names}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
