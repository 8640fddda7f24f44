"""The load of one node: batches that are all different, and whole requests."""

import pytest

from benchmarks import wire
from benchmarks.cases import BATCH_SIZES_BYTES
from benchmarks.measurements import PREPARED_BYTES, prepared_batches


@pytest.mark.parametrize("batch_name", BATCH_SIZES_BYTES)
def test_batches_are_all_different_and_of_one_size(batch_name: str) -> None:
    batches = prepared_batches(batch_name)

    assert len(set(batches.content)) == len(batches.content) >= 16
    assert {len(batch) for batch in batches.content} == {batches.size_bytes}
    assert sum(map(len, batches.content)) >= PREPARED_BYTES
    for batch, rest in list(zip(batches.content, batches.rests, strict=True))[:20]:
        assert rest == wire.produce_request("topic", 0, batch)[1]
