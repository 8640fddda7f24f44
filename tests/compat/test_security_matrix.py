"""Every API, asked by everybody: Quorate answers as Apache Kafka with the same users, ACLs and settings.

What Apache Kafka said is recorded in ``security_matrix/apache_kafka_said.json``; it is recorded anew by
``python -m tests.compat.security_matrix``.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from quorate.broker.handlers import APIS
from tests.compat.security_matrix.cases import CASES
from tests.compat.security_matrix.conditions import CONDITIONS
from tests.compat.security_matrix.differences import EXPLAINED, differences
from tests.compat.security_matrix.parts import PARTS, outcomes_of
from tests.compat.security_matrix.recording import PATH, Outcomes, about, read
from tests.peers.jars import kafka_version

DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
MOST_SHOWN = 20


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcomes]:
    """By Quorate."""
    return outcomes_of("quorate", tmp_path_factory.mktemp("matrix"))


def test_every_served_api_has_a_case() -> None:
    assert {case.api for case in CASES} == set(APIS)


def test_the_newest_version_of_every_api_is_asked() -> None:
    for api_key, api in APIS.items():
        assert api.max_version in {version for case in CASES if case.api == api_key for version in case.versions}


def test_every_condition_is_in_the_recording() -> None:
    recorded = {condition for outcomes in read(PATH, "with an authorizer").values() for condition in outcomes}
    assert recorded == {condition.name for condition in CONDITIONS}


@pytest.mark.parametrize("part", PARTS)
def test_quorate_answers_as_apache_kafka_did(said: Mapping[str, Outcomes], part: str) -> None:
    found = [each for each in differences(read(PATH, part), said[part]) if each.explanation is None]
    assert not found, f"{len(found)} differences\n" + "\n".join(map(str, found[:MOST_SHOWN]))


def test_every_explained_difference_is_one_and_is_documented(said: Mapping[str, Outcomes]) -> None:
    found = {each.explanation for part in PARTS for each in differences(read(PATH, part), said[part])}
    document = DOCUMENT.read_text()
    for explained in EXPLAINED:
        assert explained in found, explained.title
        assert f"| {explained.title} |" in document


def test_what_is_missing_and_what_is_forbidden_look_the_same(said: Mapping[str, Outcomes]) -> None:
    """To a stranger: with the names of both exchanged the same answers come to the same requests.

    Who knows the id of a topic knows of the topic: ids are no secrets, in Apache Kafka neither.
    """
    answers = {request: json.dumps(outcomes["no ACL"]) for request, outcomes in said["with an authorizer"].items()}
    compared = 0
    for request, answer in answers.items():
        exchanged = _exchanged(request)
        if "id of" not in answer and exchanged in answers:
            assert _sorted(answer) == _sorted(_exchanged(answers[exchanged])), request
            compared += 1
    assert compared > len(answers) / 2


def _exchanged(text: str) -> str:
    there = "doom" if "-doom" in text else "here"
    for one, other in ((there, "gone"), ("live", "dead")):
        text = text.replace(f"-{one}", "-?").replace(f"-{other}", f"-{one}").replace("-?", f"-{other}")
    return text


def _sorted(text: str) -> object:
    def ordered(value: object) -> object:
        if isinstance(value, dict):
            return {key: ordered(each) for key, each in value.items()}
        if isinstance(value, list):
            return sorted((ordered(each) for each in value), key=json.dumps)
        return value

    return ordered(json.loads(text))


@pytest.mark.peer
def test_the_recording_is_what_apache_kafka_says(kafka_classpath: str, tmp_path: Path) -> None:
    assert about(PATH, "version") == kafka_version()
    now = outcomes_of("apache-kafka", tmp_path)
    found = [each for part in PARTS for each in differences(read(PATH, part), now[part])]
    assert not found, f"{len(found)} differences, the second line is what it says now\n" + "\n".join(
        map(str, found[:MOST_SHOWN])
    )
