"""Logins by many at once: how many workers they take, and which users a listener seems to have."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from quorate.broker.sasl_gate import ListenerLogins, login_turns
from quorate.broker.services import Services
from quorate.metadata.core.records import ScramCredentialChanged
from quorate.metadata.core.security_state import SecurityState
from quorate.security.sasl.outcomes import Challenge
from quorate.security.sasl.session import SaslRules
from quorate.security.sasl.settings import SaslSettings
from quorate.security.scram_credentials import ScramCredential, ScramMechanism, new_salt

_WORKERS = 8
_STRANGERS = 40
SETTINGS = SaslSettings(rules=SaslRules(mechanisms=("PLAIN", "SCRAM-SHA-512")))


class _Services:
    """As much of a node's as logins need."""

    def __init__(self, executor: ThreadPoolExecutor | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.executor = executor
        self.token_keys = None
        self.metadata = SimpleNamespace(image=SimpleNamespace(security=SecurityState()))

    def logins(self, turns: asyncio.Semaphore | None = None) -> ListenerLogins:
        return ListenerLogins(SETTINGS, cast(Services, self), Random(1), b"key" * 11, turns or login_turns())

    def add(self, name: str, iterations: int) -> None:
        credential = ScramCredential(
            salt=new_salt(name.encode() * 17), stored_key=b"k" * 64, server_key=b"k" * 64, iterations=iterations
        )
        image = self.metadata.image
        image.security = image.security.replay(
            [ScramCredentialChanged(user=name, mechanism=ScramMechanism.SCRAM_SHA_512, credential=credential)]
        )


def test_however_many_guess_at_however_many_listeners_most_workers_are_free() -> None:
    async def scenario() -> None:
        most, running, lock, goes_on = 0, 0, threading.Lock(), threading.Event()

        def hash_password() -> None:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            goes_on.wait(30)
            with lock:
                running -= 1

        with ThreadPoolExecutor(_WORKERS) as executor:
            services, turns = _Services(executor), login_turns()
            listeners = [services.logins(turns) for _ in range(5)]
            guesses = [asyncio.ensure_future(each.work(hash_password)) for each in listeners * (_STRANGERS // 5)]
            # Whoever else has something to do finds a worker, while all of these wait.
            assert await services.loop.run_in_executor(executor, lambda: "done") == "done"
            gone = guesses.pop()
            gone.cancel()
            goes_on.set()
            await asyncio.gather(*guesses)
        assert most <= 2

    asyncio.run(scenario())


def test_unknown_users_look_as_those_that_there_are_now() -> None:
    async def scenario() -> None:
        services = _Services()
        logins = services.logins()
        assert iterations(logins, "nobody") == b"4096"
        for number in range(5):
            services.add(f"user-{number}", 8192)
        assert iterations(logins, "user-1") == iterations(logins, "nobody") == b"8192"
        assert first(logins, "nobody") == first(services.logins(), "nobody")

    asyncio.run(scenario())


def first(logins: ListenerLogins, name: str) -> list[bytes]:
    """What the node says first, but for the nonce."""
    outcome: Any = logins.new_mechanism("SCRAM-SHA-512").answer(f"n,,n={name},r=abc".encode())
    assert isinstance(outcome, Challenge)
    return outcome.token.split(b",")[1:]


def iterations(logins: ListenerLogins, name: str) -> bytes:
    return first(logins, name)[1].removeprefix(b"i=")
