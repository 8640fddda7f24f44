"""May this request be served? The table of ``quorate.security.api_rules``, applied to one request and its sender."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from quorate.security.api_rules import API_RULES, AclAsk, RefusalPlace
from quorate.security.authorizer import AclVerdict, Authorizer, NoAuthorizer, Requester

#: The name of a topic id; None for one that there is not. Its handler says so, whoever asks.
TopicNames = Callable[[UUID], str | None]

_UNKNOWN_API: Final = AclAsk(operation=AclOperation.CLUSTER_ACTION, resource_type=AclResourceType.CLUSTER)


class Checked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One decision, as the audit log tells it."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str
    verdict: AclVerdict
    #: How often the request names the resource.
    count: int = 1
    #: Of a denial: not an attempt at anything.
    is_quiet: bool = False


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. A request that is not refused as a whole may still have elements that are."""

    refusal: ErrorCode | None = None
    denied: frozenset[tuple[AclOperation, AclResourceType, str]] = frozenset()
    checked: tuple[Checked, ...] = ()

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> bool:
        """Of a resource that the request names."""
        return (operation, resource_type, name) not in self.denied


_FULL_ACCESS: Final = Access()


def examine(
    request: Any,
    version: int,
    *,
    api_key: int,
    authorizer: Authorizer,
    requester: Requester,
    topic_name: TopicNames,
    tells_allowed: bool = False,
) -> Access:
    """Everything that the table asks of the request itself, until something refuses it as a whole.

    What was denied is told for the audit log; ``tells_allowed`` has the rest told too.
    """
    asks = _RULES.get(api_key, (_UNKNOWN_API,))
    if not asks or isinstance(authorizer, NoAuthorizer):
        return _FULL_ACCESS
    denied: set[tuple[AclOperation, AclResourceType, str]] = set()
    checked: list[Checked] = []
    for ask in asks:
        if ask.from_state or not ask.first_version <= version <= ask.last_version:
            continue
        outcomes = list(check(ask, names_of(ask, request, topic_name), authorizer, requester))
        checked += [each for each in outcomes if tells_allowed or not each.verdict.is_allowed]
        refused = _refused(ask, outcomes, authorizer, requester)
        if refused and ask.refusal is RefusalPlace.ANSWER:
            return Access(refusal=ask.error_code, checked=tuple(checked))
        denied |= {(ask.operation, ask.resource_type, name) for name in refused}
    return Access(denied=frozenset(denied), checked=tuple(checked))


_RULES: Final[dict[int, tuple[AclAsk, ...]]] = {int(key): asks for key, asks in API_RULES.items()}


def check(ask: AclAsk, names: Iterable[str], authorizer: Authorizer, requester: Requester) -> Iterator[Checked]:
    """Each name once. Nothing where an operation on the cluster makes it needless; for handlers too."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    if not counts:
        return
    if ask.unless_cluster is not None:
        verdict = authorizer.authorize(requester, ask.unless_cluster, AclResourceType.CLUSTER, CLUSTER_NAME)
        if verdict.is_allowed:
            yield Checked(
                operation=ask.unless_cluster, resource_type=AclResourceType.CLUSTER, name=CLUSTER_NAME, verdict=verdict
            )
            return
    for name, count in counts.items():
        yield Checked(
            operation=ask.operation,
            resource_type=ask.resource_type,
            name=name,
            verdict=authorizer.authorize(requester, ask.operation, ask.resource_type, name),
            count=count,
            is_quiet=ask.is_quiet or ask.or_on_any is not None,
        )


def names_of(ask: AclAsk, request: Any, topic_name: TopicNames) -> Iterator[str]:
    """The names in the request that an ask is about. What is null or an unknown id names nothing."""
    if not ask.names:
        if ask.only_if is None or ask.only_if(request):
            yield CLUSTER_NAME
        return
    *path, field = ask.names.split(".")
    if not path and ask.only_if is not None and not ask.only_if(request):
        return
    for element in _elements([request], path):
        if path and ask.only_if is not None and not ask.only_if(element):
            continue
        value = getattr(element, field)
        for name in value if isinstance(value, Collection) and not isinstance(value, str) else (value,):
            if isinstance(name, str):
                yield name
            elif isinstance(name, UUID) and name.int and (known := topic_name(name)) is not None:
                yield known


def _elements(parents: Iterable[Any], path: list[str]) -> Iterable[Any]:
    for field in path:
        parents = [element for parent in parents for element in getattr(parent, field) or ()]
    return parents


def _refused(ask: AclAsk, outcomes: list[Checked], authorizer: Authorizer, requester: Requester) -> list[str]:
    names = [outcome.name for outcome in outcomes if not outcome.verdict.is_allowed]
    if names and ask.or_on_any is not None and authorizer.may_on_any(requester, *ask.or_on_any):
        return []
    return names
