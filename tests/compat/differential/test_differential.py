"""Our codecs against two others, byte for byte, in every message and version that both sides have."""

from collections.abc import Callable
from typing import Any

import pytest

from quorate.protocol.apis import APIS, ApiDefinition
from quorate.protocol.codec import decode, encode
from quorate.protocol.frames import encode_request, encode_response
from quorate.protocol.schema import Request, Response, VersionedMessage
from tests.compat.differential.differences import MISSING, NARROWER, Narrower
from tests.compat.differential.kafka_python_oracle import KafkaPythonOracle
from tests.compat.differential.kio_oracle import KioOracle
from tests.compat.differential.oracle import Oracle, joined, to_plain
from tests.unit.protocol.samples import Sampler, message_types

ORACLES: list[Oracle] = [KioOracle(), KafkaPythonOracle()]
SAMPLES_PER_VERSION = 10
CORRELATION_ID = 0x01020304


def _missing_versions(oracle: Oracle, message_type: type[VersionedMessage]) -> range:
    name = message_type.__name__.removesuffix("Request").removesuffix("Response")
    return MISSING[oracle.name].get(name, range(0))


def _shared_versions(oracle: Oracle, message_type: type[VersionedMessage]) -> list[int]:
    missing = _missing_versions(oracle, message_type)
    return [v for v in range(message_type.MIN_VERSION, message_type.MAX_VERSION + 1) if v not in missing]


def _values_for(oracle: Oracle, message_type: type[VersionedMessage], version: int) -> Callable[[str, Any], Any]:
    replacements = {narrower.kind: narrower.replace for narrower in NARROWER if narrower.oracle == oracle.name}

    def replace(path: str, value: Any) -> Any:
        kind = oracle.kind(message_type, version, path)
        return replacements[kind](value) if kind in replacements else value

    return replace


def _samples(oracle: Oracle, message_type: type[VersionedMessage], version: int) -> list[VersionedMessage]:
    seed = f"{message_type.__name__} {version}"
    sampler = Sampler(seed, _values_for(oracle, message_type, version))
    return [sampler.message(message_type, version) for _ in range(SAMPLES_PER_VERSION)]


@pytest.mark.parametrize("message_type", list(message_types()), ids=lambda message_type: message_type.__name__)
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_same_bytes_and_same_values_as(oracle: Oracle, message_type: type[VersionedMessage]) -> None:
    for version in _shared_versions(oracle, message_type):
        for message in _samples(oracle, message_type, version):
            ours = joined(encode(message, version))

            verdict = oracle.judge(message_type, version, ours)

            assert verdict.encoded == ours, f"version {version}: {message}"
            assert verdict.plain == to_plain(message, version), f"version {version}"
            assert decode(message_type, verdict.encoded, version) == message, f"version {version}"


def _frame(message: VersionedMessage, version: int) -> bytes:
    if isinstance(message, Request):
        return joined(encode_request(CORRELATION_ID, "somebody", message, version))
    assert isinstance(message, Response)
    return joined(encode_response(CORRELATION_ID, message, version))


@pytest.mark.parametrize("api", list(APIS.values()), ids=lambda api: api.name)
def test_same_frames_as_kafka_python(api: ApiDefinition) -> None:
    oracle = KafkaPythonOracle()
    for message_type in (api.request_type, api.response_type):
        for version in _shared_versions(oracle, message_type):
            message = _samples(oracle, message_type, version)[0]

            theirs = oracle.frame(message_type, version, joined(encode(message, version)), CORRELATION_ID, "somebody")

            assert _frame(message, version) == theirs, f"{message_type.__name__} version {version}"


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_versions_listed_as_missing_are_those_that_are(oracle: Oracle) -> None:
    listed, absent = set(), set()
    for message_type in message_types():
        for version in range(message_type.MIN_VERSION, message_type.MAX_VERSION + 1):
            if version in _missing_versions(oracle, message_type):
                listed.add((message_type.__name__, version))
            if not oracle.knows(message_type, version):
                absent.add((message_type.__name__, version))

    assert listed == absent


def test_names_listed_as_missing_exist() -> None:
    names = {message_type.__name__.removesuffix("Request").removesuffix("Response") for message_type in message_types()}

    assert {name for listed in MISSING.values() for name in listed} <= names


@pytest.mark.parametrize("narrower", NARROWER, ids=lambda narrower: f"{narrower.oracle}-{narrower.kind}")
def test_values_listed_as_beyond_an_oracle_still_are(narrower: Narrower) -> None:
    oracle = next(oracle for oracle in ORACLES if oracle.name == narrower.oracle)
    message_type = type(narrower.example)
    encoded = joined(encode(narrower.example, narrower.example_version))

    try:
        verdict = oracle.judge(message_type, narrower.example_version, encoded)
    except Exception:  # Whatever the oracle raises, it does not read the message.
        return

    assert verdict.encoded != encoded, narrower.reason
