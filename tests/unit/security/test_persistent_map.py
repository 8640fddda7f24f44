"""Persistent maps: what a dictionary says, and earlier ones stay as they were."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.security.persistent_map import PersistentMap

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.integers()), max_size=300)


@given(STEPS)
def test_it_holds_what_a_dictionary_holds(steps: list[tuple[bool, int, int]]) -> None:
    table: PersistentMap[int, int] = PersistentMap()
    model: dict[int, int] = {}
    for is_entry, key, value in steps:
        if is_entry:
            table = table.with_entry(key, value)
            model[key] = value
        else:
            table = table.without(key)
            model.pop(key, None)

    assert table == model
    assert table == PersistentMap(model)
    assert len(table) == len(model)
    assert sorted(table) == sorted(model)


def test_an_earlier_one_stays_as_it_was_while_the_table_grows() -> None:
    tables: list[PersistentMap[str, int]] = [PersistentMap()]
    for number in range(500):
        tables.append(tables[-1].with_entry(f"key-{number}", number))

    for size, table in enumerate(tables):
        assert len(table) == size
        assert dict(table) == {f"key-{number}": number for number in range(size)}


def test_a_change_shares_what_is_the_same() -> None:
    table: PersistentMap[int, object] = PersistentMap()
    for number in range(10_000):
        table = table.with_entry(number, object())

    changed = table.with_entry(4_711, None)

    differing = [one for one, other in zip(table._buckets, changed._buckets, strict=True) if one is not other]
    assert len(differing) == 1
    assert max(len(bucket) for bucket in table._buckets) < 200
    assert len(table._buckets) < 200


def test_taking_away_what_is_not_there_changes_nothing() -> None:
    table = PersistentMap({"a": 1})

    assert table.without("b") is table
    assert repr(table) == "PersistentMap({'a': 1})"
