"""What native code takes for a batch that a producer may send: what its twin takes, and no more."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import KafkaError
from quorate.kernel.native import choice
from quorate.records.batch import BatchHeader
from quorate.records.validation import validate_produced, validate_produced_in_python
from tests.unit.records.raw_batches import batch_of_payload, raw_record

pytestmark = pytest.mark.skipif(choice.module is None, reason=choice.reason)

VERSIONS = (3, 6, 7, 13)
EDGES = (-(2**31), -2, -1, 0, 1, 2, 2**31 - 1)
#: Up to the CRC, which covers the attributes and all behind them.
FREE_BYTES = 17
MUTATIONS = 20_000


def judged(batch: bytes, version: int, holes: bool) -> BatchHeader | tuple[type[Exception], str]:
    try:
        return validate_produced_in_python(batch, version, may_have_holes=holes)
    except KafkaError as error:
        return type(error), str(error)


def agree(batch: bytes, version: int, *, holes: bool = False) -> bool:
    """Whether it is sound, which both know."""
    assert choice.module is not None
    fields = choice.module.read_produced_header(batch, version, holes)
    by_twin = judged(batch, version, holes)
    assert (fields is not None) == isinstance(by_twin, BatchHeader)
    if fields is None:
        with pytest.raises(KafkaError) as refusal:
            validate_produced(batch, produce_version=version, may_have_holes=holes)
        assert (type(refusal.value), str(refusal.value)) == by_twin
        return False
    header = validate_produced(batch, produce_version=version, may_have_holes=holes)
    assert type(header) is BatchHeader
    assert header == by_twin == fields
    return True


@pytest.mark.parametrize("size_bytes", [0, 1, 3, 7, 8, 9, 100, 1_000, 10_000, 70_000, 1_000_000])
def test_batches_of_any_size_are_sound_until_a_bit_is_not(size_bytes: int) -> None:
    batch = bytearray(batch_of_payload(raw_record() + Random(size_bytes).randbytes(size_bytes), 1))
    assert agree(bytes(batch), 13)
    random = Random(size_bytes)
    for _ in range(20):
        position = random.randrange(FREE_BYTES, len(batch))
        batch[position] ^= 1 << random.randrange(8)
        assert not agree(bytes(batch), 13)
        batch[position:] = batch_of_payload(raw_record() + Random(size_bytes).randbytes(size_bytes), 1)[position:]


FIELDS = st.fixed_dictionaries(
    {
        "attributes": st.integers(-(2**15), 2**15 - 1) | st.integers(0, 0x7F),
        "last_offset_delta": st.sampled_from(EDGES),
        "base_timestamp": st.sampled_from((-(2**63), -1, 0, 2**63 - 1)),
        "producer_id": st.sampled_from((-(2**63), -2, -1, 0, 1, 2**63 - 1)),
        "producer_epoch": st.sampled_from((-(2**15), -1, 0, 2**15 - 1)),
        "base_sequence": st.sampled_from(EDGES),
    }
)


@given(FIELDS, st.sampled_from(EDGES), st.sampled_from(VERSIONS), st.booleans())
def test_every_field_is_judged_alike(fields: dict[str, int], record_count: int, version: int, holes: bool) -> None:
    batch: bytes = batch_of_payload(raw_record(), record_count, **fields)  # type: ignore[arg-type]
    agree(batch, version, holes=holes)


def test_changed_bytes_are_judged_alike() -> None:
    random = Random("changed")
    sound = batch_of_payload(raw_record() * 3, 3, last_offset_delta=2)
    outcomes = set()
    for _ in range(MUTATIONS):
        batch = bytearray(sound)
        match random.randrange(4):
            case 0:
                batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
            case 1:
                batch[random.randrange(FREE_BYTES)] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 2:
                del batch[random.randrange(len(batch)) :]
            case _:
                batch += random.choice((b"\0", sound, bytes(batch[:61])))
        outcomes.add(agree(bytes(batch), random.choice(VERSIONS)))
    assert outcomes == {True, False}
