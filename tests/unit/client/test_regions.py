"""Regions cut and checked: native code and its twins find the same, whatever the bytes are."""

import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.fetch.batches import check_batches, walk_batches
from quorate.client.fetch.regions import RegionCut, check_region, cut_region, cut_walked
from quorate.kernel.ids import Offset
from quorate.kernel.native import NativeModule, native
from quorate.records.errors import CorruptBatch
from tests.unit.client.batches import log
from tests.unit.client.region_bytes import mutated, random_region, raw_batch

Found = TypeVar("Found")
SEEDS = st.integers(0, 2**64 - 1)
LAST_OFFSET = 2**63 - 1


@pytest.fixture
def module() -> NativeModule:
    if native is None:
        pytest.skip("no native module")
    return native


def outcome(find: Callable[[], Found]) -> Found | str:
    """What it gives, or how it fails."""
    try:
        return find()
    except CorruptBatch as error:
        return str(error)


def check_walked(data: memoryview) -> None:
    check_batches(data, walk_batches(data))


def compare(data: bytes, start: int, end: int, *, across: bool) -> None:
    region = memoryview(data)
    bounds = Offset(start), Offset(end)
    found = outcome(lambda: cut_region(region, *bounds, include_batch_across_end=across))
    assert found == outcome(lambda: cut_walked(region, *bounds, include_batch_across_end=across))
    if isinstance(found, RegionCut):
        inside = region[found.start : found.end]
        assert outcome(lambda: check_region(inside)) == outcome(lambda: check_walked(inside))


@given(SEEDS)
def test_both_find_the_same_in_sound_regions(seed: int) -> None:
    chance = random.Random(seed)
    first = chance.choice((0, 50, LAST_OFFSET - 20))
    data = random_region(chance, base_offset=first, rare=chance.choice((0.0, 0.2))) + b"\0" * chance.choice((0, 9))
    bounds = sorted(first + chance.randrange(-3, 30) for _ in range(2))
    compare(data, max(0, bounds[0]), min(bounds[1], LAST_OFFSET), across=chance.random() < 0.5)


@given(SEEDS)
def test_both_find_the_same_in_damaged_regions(seed: int) -> None:
    chance = random.Random(seed)
    data = mutated(chance, random_region(chance, rare=0.05))
    compare(data, chance.randrange(10), chance.choice((12, LAST_OFFSET)), across=chance.random() < 0.5)


@given(st.binary(max_size=200))
def test_both_find_the_same_in_anything(data: bytes) -> None:
    compare(data, 0, LAST_OFFSET, across=True)


def test_native_code_itself_takes_a_sound_region(module: NativeModule) -> None:
    """Were all left to the twins, the others here would compare them with themselves."""
    data = log((0, 4), (5, 5), (9, 12), (13, 20))

    cut = module.cut_region(data, 3, 10, True)

    assert cut == cut_walked(memoryview(data), Offset(3), Offset(10), include_batch_across_end=True)
    assert module.check_region(data)


def test_native_code_leaves_to_its_twin_what_is_odd(module: NativeModule) -> None:
    sound = raw_batch(0, 1)
    behind_all_offsets = raw_batch(LAST_OFFSET, 1)
    too_short = bytearray(sound)
    too_short[8:12] = (48).to_bytes(4, "big")

    for odd in (b"", behind_all_offsets, sound + behind_all_offsets, bytes(too_short), sound[:60]):
        assert module.cut_region(odd, 0, LAST_OFFSET, True) is None
    assert not module.check_region(sound + sound[:-1])


@pytest.mark.parametrize("position", range(17, 61 + 5))
def test_a_bit_that_is_another_one_is_found_wherever_it_is_under_the_checksum(position: int) -> None:
    data = bytearray(raw_batch(0, 1) + raw_batch(1, 1, payload=b"value") + raw_batch(2, 1))
    data[61 + position] ^= 0x10

    with pytest.raises(CorruptBatch, match="batch at offset 1 has CRC"):
        check_region(memoryview(data))


@pytest.mark.parametrize("arguments", [(), (b"",), (1, 0, 1, True), (b"", "0", 1, True), (b"", 0, 1, True, 1)])
def test_odd_arguments_are_refused(arguments: tuple[object, ...], module: NativeModule) -> None:
    with pytest.raises(TypeError):
        module.cut_region(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        module.check_region(arguments)  # type: ignore[arg-type]
