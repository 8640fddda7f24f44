"""SCRAM with the client's side of other people: what they make of our challenge, and we of their proof."""

import asyncio
from typing import Any

import pytest
from aiokafka.conn import ScramAuthenticator
from kafka.net.sasl.scram import ScramClient

from quorate.security.decoys import Decoys
from quorate.security.principals import user
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginRefused
from quorate.security.sasl.scram import ScramServer, ScramUsers
from quorate.security.scram_credentials import ScramMechanism, derive_credential

MECHANISMS = [ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512]
NAMES = ["alice", "a=b,c"]


def server(mechanism: ScramMechanism) -> ScramServer:
    known = {(mechanism, name): derive_credential(mechanism, "pass=word,ü", b"0123abc", 8192) for name in NAMES}
    users = ScramUsers(find=lambda *key: known.get(key), find_token=lambda _: None, decoys=Decoys(b"key", {}))
    return ScramServer(mechanism, users, "serverNonce")


def kafka_python(mechanism: ScramMechanism, name: str, password: str) -> Any:
    return ScramClient(name, password, mechanism.mechanism_name)


def aiokafka(mechanism: ScramMechanism, name: str, password: str) -> Any:
    return ScramAuthenticator(
        loop=asyncio.new_event_loop(),
        sasl_plain_password=password,
        sasl_plain_username=name,
        sasl_mechanism=mechanism.mechanism_name,
    )


def text(message: Any) -> Any:
    return message.encode() if isinstance(message, str) else message


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
# kafka-python does not escape names.
@pytest.mark.parametrize(
    ("make", "takes_text", "name"),
    [(kafka_python, False, "alice"), (aiokafka, True, "alice"), (aiokafka, True, "a=b,c")],
)
@pytest.mark.parametrize("password", ["pass=word,ü", "wrong"])
def test_other_clients_log_in(mechanism: ScramMechanism, name: str, make: Any, takes_text: bool, password: str) -> None:
    client, side = make(mechanism, name, password), server(mechanism)
    challenge = side.answer(text(client.first_message()))
    assert isinstance(challenge, Challenge)
    client.process_server_first_message(challenge.token.decode() if takes_text else challenge.token)
    outcome = side.answer(text(client.final_message()))

    if password == "wrong":
        assert isinstance(outcome, LoginRefused)
        return
    assert isinstance(outcome, LoginAccepted)
    assert outcome.principal == user(name)
    client.process_server_final_message(outcome.token.decode() if takes_text else outcome.token)
