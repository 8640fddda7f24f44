"""The topics of the benchmarks: records that are all different, batches of the size that a row promises."""

import re
import struct
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from benchmarks import wire
from benchmarks.contenders.records import values
from benchmarks.contenders.shapes import QUICK_SIZES, Shape, Sizes, describe, shapes_of
from benchmarks.contenders.topics import WrongTopicError, check_batches

MANY = 20_000


@pytest.mark.parametrize("size_bytes", [200, 1024])
def test_no_record_and_no_random_part_comes_twice(size_bytes: int) -> None:
    made = list(islice(values(size_bytes), MANY))
    noise = {value[: size_bytes * 2 // 5] for value in made}
    text = {value[size_bytes * 2 // 5 :] for value in made}

    assert {len(value) for value in made} == {size_bytes}
    assert len(noise) == len(text) == MANY


def test_records_are_the_same_in_every_run_and_their_text_is_text() -> None:
    first, second = (list(islice(values(1024), 600)) for _ in range(2))

    assert first == second
    for value in first:
        assert re.fullmatch(rb"([0-9a-f]{8} )+[0-9a-f ]*", value[409:])
        assert not value[:409].isascii()


def test_sizes_are_in_the_names_unless_they_are_the_usual_ones() -> None:
    names = [shape.name for shape in shapes_of(Sizes(topics_gb=(0.1, 1, 4)))]

    assert names == [
        "lz4-0.1gb",
        "uncompressed-0.1gb",
        "lz4",
        "uncompressed",
        "lz4-4gb",
        "uncompressed-4gb",
        "1rec",
        "20rec",
        "320rec",
        "topics",
    ]


@pytest.mark.parametrize("sizes", [Sizes(), QUICK_SIZES, Sizes(topics_gb=(0.01, 4.0))])
def test_records_of_all_partitions_are_all_records(sizes: Sizes) -> None:
    shapes = shapes_of(sizes)
    for shape in (*shapes, *(each.small() for each in shapes)):
        assert sum(shape.end_offsets) * len(shape.topics) == shape.records > 0
        assert len(shape.end_offsets) == shape.partitions
        assert len(set(shape.topics)) == shape.topic_count
    for shape in shapes:
        assert 4.5 < shape.records / shape.small().records < 5.5
        assert not set(shape.topics) & set(shape.small().topics)


def test_topics_have_the_size_that_was_asked_for() -> None:
    lz4, uncompressed, *_, of_320, many = shapes_of(Sizes(topics_gb=(4.0,)))

    for shape in (lz4, uncompressed):
        assert 3.99e9 < shape.records * shape.value_size_bytes <= 4e9
    assert (lz4.producer_compression, uncompressed.producer_compression) == ("lz4", "none")
    assert (of_320.records * of_320.value_size_bytes, of_320.batch_records) == (1_000_000_000, 320)
    assert (many.topic_count, many.records_per_topic) == (1000, 10)
    assert any("4 GB of records of 1 KiB" in line for line in describe(Sizes(topics_gb=(4.0,))))


def log_of(folder: Path, counts: list[int]) -> Path:
    path = folder / "0.log"
    path.write_bytes(b"".join(wire.build_batch(count, 10, Random(1), 1) for count in counts))
    return path


def test_batches_of_another_size_than_promised_end_the_run(tmp_path: Path) -> None:
    shape = Shape(name="20rec", records_per_topic=100, batch_records=20)
    empty = tmp_path / "empty.log"
    empty.touch()

    assert check_batches(shape, [log_of(tmp_path, [20, 20, 20, 20, 15]), empty]) == 19
    for counts in ([20, 7, 20], [20, 21, 20, 21]):
        with pytest.raises(WrongTopicError, match="records a batch and not 20"):
            check_batches(shape, [log_of(tmp_path, counts)])
    with pytest.raises(WrongTopicError, match=r"0\.0 records"):
        check_batches(shape, [])


def test_a_log_that_is_cut_off_is_no_topic(tmp_path: Path) -> None:
    path = log_of(tmp_path, [20])
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(struct.error):
        check_batches(Shape(name="20rec", records_per_topic=20, batch_records=20), [path])
