"""Where Quorate answers otherwise than Apache Kafka did, and the differences that are meant."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tests.compat.security_matrix.answers import comparable
from tests.compat.security_matrix.matrix import CLOSED
from tests.compat.security_matrix.recording import Outcomes

NOT_ASKED: Final = "not asked"


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A difference that is meant. Its title is a row of the table in ``docs/compatibility.md``."""

    title: str
    #: Of the request's name as a whole.
    requests: str
    #: Of what Apache Kafka said and what Quorate says: whether that is the difference.
    is_it: Callable[[Any, Any], bool]


def _codes(outcome: Any) -> set[int]:
    """All error codes in an outcome."""
    if isinstance(outcome, list):
        return {code for each in outcome for code in _codes(each)}
    if not isinstance(outcome, dict):
        return set()
    own = {value for key, value in outcome.items() if key.endswith("error_code")}
    return own | {code for each in outcome.values() for code in _codes(each)}


def _is_silent(outcome: Any) -> bool:
    return bool(outcome == CLOSED)


EXPLAINED: Final[tuple[Explained, ...]] = (
    Explained(
        title="a transaction without its id",
        requests=r"PRODUCE in a transaction without a name v\d+",
        is_it=lambda was, now: _codes(was) == {53} and _codes(now) <= {3, 29, 53, 100},
    ),
    Explained(
        title="a topic that Metadata makes",
        requests=r"METADATA of new topics v\d+",
        is_it=lambda was, now: 3 in _codes(was) and 3 not in _codes(now),
    ),
    Explained(
        title="ElectLeaders where nothing is to be elected",
        requests=r"ELECT_LEADERS of all topics v\d+",
        is_it=lambda was, now: not _codes(was) and now == {},
    ),
    Explained(
        title="voters of a quorum that cannot change",
        requests=r"(ADD|REMOVE)_RAFT_VOTER that there is not v\d+",
        is_it=lambda was, now: (_codes(was), _codes(now)) == ({35}, {127}),
    ),
    Explained(
        title="a request in the middle of a login",
        requests=r".*",
        is_it=lambda was, now: _codes(was) == {34} and (_is_silent(now) or _codes(now) == {34}),
    ),
    Explained(
        title="a SCRAM user that does not exist",
        requests=r"SCRAM, (an unknown user|another mechanism's user)",
        is_it=lambda was, now: (
            (_codes(was) == {58} and now == {"auth_bytes": "some", "session_lifetime_ms": 0})
            or (_is_silent(was) and _codes(now) == {58})
            or (was == NOT_ASKED and _is_silent(now))
        ),
    ),
    Explained(
        title="an access token used as somebody else",
        requests=r"an access token, as somebody else",
        is_it=lambda was, now: _codes(was) == _codes(now) == {58},
    ),
    Explained(
        title="another access token after a refused one",
        requests=r"an expired access token, and another",
        is_it=lambda was, now: not _codes(was) and _codes(now) == {58},
    ),
    Explained(
        title="credentials that are no access token",
        requests=r"no bearer",
        is_it=lambda was, now: _is_silent(was) and _codes(now) == {58},
    ),
    Explained(
        title="a mechanism that is not enabled, for a renewal",
        requests=r"renewed by an unknown mechanism",
        is_it=lambda was, now: _is_silent(was) and _codes(now) == {33},
    ),
    Explained(
        title="an ACL of unknown kind",
        requests=r"CREATE_ACLS that is odd \(\d+\) v3",
        is_it=lambda was, now: (_is_silent(was) or _codes(was) == {-1}) and _codes(now) <= {31, 42, 54},
    ),
)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    request: str
    condition: str
    recorded: Any
    said: Any

    @property
    def explanation(self) -> Explained | None:
        return next(
            (
                each
                for each in EXPLAINED
                if re.fullmatch(each.requests, self.request) and each.is_it(self.recorded, self.said)
            ),
            None,
        )

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.request}, {self.condition}:",
                f"  Apache Kafka: {json.dumps(self.recorded)}",
                f"  Quorate:      {json.dumps(self.said)}",
            )
        )


def differences(recorded: Outcomes, said: Outcomes) -> Iterator[Difference]:
    for request in recorded.keys() | said.keys():
        was, now = recorded.get(request, {}), said.get(request, {})
        for condition in was.keys() | now.keys():
            before, after = comparable(was.get(condition, NOT_ASKED)), comparable(now.get(condition, NOT_ASKED))
            if before != after:
                yield Difference(request=request, condition=condition, recorded=before, said=after)
