"""All ACLs of a cluster, kept so that a decision looks at the few that can matter: immutable, for the metadata image.

They are kept by resource type and principal, and there by pattern. A decision looks up the resource's own name, the
wildcard, and the name's beginnings, of those lengths only that prefixed ACLs have.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from quorate.security.acls import WILDCARD, Acl, AclFilter, AclResourceType, PatternType
from quorate.security.persistent_map import PersistentMap

#: The type and name of a resource pattern, without the resource type.
Pattern = tuple[PatternType, str]
_Patterns = PersistentMap[Pattern, tuple[Acl, ...]]
_NO_PATTERNS: Final[_Patterns] = PersistentMap()
#: With more changes than one for so many ACLs, all of it is faster made anew.
_REBUILT_AT: Final = 8


class AclIndex:
    __slots__ = ("_count", "_prefix_lengths", "_shared_patterns", "_tables")

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        tables: dict[tuple[AclResourceType, str], dict[Pattern, tuple[Acl, ...]]] = {}
        all_acls = dict.fromkeys(acls)
        for acl in all_acls:
            table = tables.setdefault((acl.resource_type, acl.principal), {})
            table[_pattern(acl)] = (*table.get(_pattern(acl), ()), acl)
        self._count = len(all_acls)
        self._tables: PersistentMap[tuple[AclResourceType, str], _Patterns] = PersistentMap(
            {key: PersistentMap(table) for key, table in tables.items()}
        )
        shared = Counter((resource_type, pattern) for (resource_type, _), table in tables.items() for pattern in table)
        #: In how many tables a pattern is: whether a resource has any ACL, whoever it is for.
        self._shared_patterns: PersistentMap[tuple[AclResourceType, Pattern], int] = PersistentMap(shared)
        lengths = Counter((each, len(name)) for each, (kind, name) in shared if kind is PatternType.PREFIXED)
        #: How many prefixed patterns there are of each length.
        self._prefix_lengths: Mapping[AclResourceType, Mapping[int, int]] = {
            each: {length: count for (of_type, length), count in lengths.items() if of_type is each}
            for each in {of_type for of_type, _ in lengths}
        }

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Acl]:
        for patterns in self._tables.values():
            for acls in patterns.values():
                yield from acls

    def __contains__(self, acl: Acl) -> bool:
        table = self._tables.get((acl.resource_type, acl.principal), _NO_PATTERNS)
        return acl in table.get((acl.pattern_type, acl.resource_name), ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AclIndex) and len(self) == len(other) and all(acl in other for acl in self)

    __hash__ = None  # type: ignore[assignment]  # Too large to be a key.

    def changed(self, changes: Mapping[Acl, bool]) -> "AclIndex":
        """With the ACLs whose value is True, without the others. An ACL is there once, or not."""
        if len(changes) * _REBUILT_AT > len(self):
            kept = (acl for acl in self if changes.get(acl, True))
            return AclIndex([*kept, *(acl for acl, is_there in changes.items() if is_there)])
        changed = self._copy()
        for acl, is_there in changes.items():
            if is_there:
                changed._add(acl)
            else:
                changed._remove(acl)
        return changed

    def for_resource(self, resource_type: AclResourceType, name: str, principals: Iterable[str]) -> Iterator[Acl]:
        """The ACLs of these principals that a resource of this name falls under."""
        tables = [
            table for principal in principals if (table := self._tables.get((resource_type, principal))) is not None
        ]
        if tables:
            for pattern in self._patterns_of(resource_type, name):
                for table in tables:
                    yield from table.get(pattern, ())

    def of_type(self, resource_type: AclResourceType, principals: Iterable[str]) -> Iterator[Acl]:
        """All ACLs of these principals about resources of this type."""
        for principal in principals:
            for acls in self._tables.get((resource_type, principal), _NO_PATTERNS).values():
                yield from acls

    def has_any_for(self, resource_type: AclResourceType, name: str) -> bool:
        """Whether there is an ACL that the resource falls under, whoever it is for."""
        return any(
            (resource_type, pattern) in self._shared_patterns for pattern in self._patterns_of(resource_type, name)
        )

    def matching(self, wanted: AclFilter) -> Iterator[Acl]:
        for (resource_type, principal), table in self._tables.items():
            if wanted.resource_type not in (AclResourceType.ANY, resource_type):
                continue
            if wanted.principal is None or wanted.principal == principal:
                yield from self._matching_in(table, resource_type, wanted)

    def _matching_in(self, table: _Patterns, resource_type: AclResourceType, wanted: AclFilter) -> Iterator[Acl]:
        if wanted.resource_name is None:
            return (acl for acls in table.values() for acl in acls if wanted.matches(acl))
        if wanted.pattern_type is PatternType.MATCH:
            patterns: Iterable[Pattern] = dict.fromkeys(self._patterns_of(resource_type, wanted.resource_name))
        else:
            patterns = ((kind, wanted.resource_name) for kind in (PatternType.LITERAL, PatternType.PREFIXED))
        return (acl for pattern in patterns for acl in table.get(pattern, ()) if wanted.matches(acl))

    def _patterns_of(self, resource_type: AclResourceType, name: str) -> Iterator[Pattern]:
        """Every pattern that a resource of this name falls under, and that some ACL may have."""
        yield PatternType.LITERAL, name
        if name != WILDCARD:
            yield PatternType.LITERAL, WILDCARD
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield PatternType.PREFIXED, name[:length]

    def _copy(self) -> "AclIndex":
        copy = AclIndex()
        copy._tables = self._tables
        copy._shared_patterns = self._shared_patterns
        copy._prefix_lengths = self._prefix_lengths
        copy._count = self._count
        return copy

    def _add(self, acl: Acl) -> None:
        table, pattern = self._tables.get((acl.resource_type, acl.principal), _NO_PATTERNS), _pattern(acl)
        before = table.get(pattern, ())
        if acl in before:
            return
        if not before:
            self._count_pattern(acl.resource_type, pattern, 1)
        self._tables = self._tables.with_entry(
            (acl.resource_type, acl.principal), table.with_entry(pattern, (*before, acl))
        )
        self._count += 1

    def _remove(self, acl: Acl) -> None:
        if acl not in self:
            return
        key, pattern = (acl.resource_type, acl.principal), _pattern(acl)
        rest = tuple(other for other in self._tables[key][pattern] if other != acl)
        table = self._tables[key].with_entry(pattern, rest) if rest else self._tables[key].without(pattern)
        self._tables = self._tables.with_entry(key, table) if table else self._tables.without(key)
        if not rest:
            self._count_pattern(acl.resource_type, pattern, -1)
        self._count -= 1

    def _count_pattern(self, resource_type: AclResourceType, pattern: Pattern, change: int) -> None:
        """A principal more, or one less, has an ACL with the pattern."""
        key = (resource_type, pattern)
        before = self._shared_patterns.get(key, 0)
        after = before + change
        self._shared_patterns = (
            self._shared_patterns.with_entry(key, after) if after else self._shared_patterns.without(key)
        )
        kind, name = pattern
        if kind is PatternType.PREFIXED and 0 in (before, after):
            counts = dict(self._prefix_lengths.get(resource_type, {}))
            counts[len(name)] = counts.get(len(name), 0) + change
            lengths = {length: count for length, count in counts.items() if count}
            self._prefix_lengths = {**self._prefix_lengths, resource_type: lengths}


def _pattern(acl: Acl) -> Pattern:
    return acl.pattern_type, acl.resource_name
