"""A short fuzz of each port of real nodes, and of the door; ``make fuzz`` sends a million frames to each port."""

from pathlib import Path

import pytest

from tests.fuzz.run import MOST_MEMORY_BYTES, Plan, Port, run_fuzz


@pytest.mark.parametrize(
    ("port", "frames", "answers"), [("client", 24_000, 8_000), ("peer", 24_000, 2_400), ("door", 8_000, 4_000)]
)
def test_no_frame_crashes_a_node_or_makes_it_log_a_traceback_or_lose_anything(
    port: Port, frames: int, answers: int, tmp_path: Path
) -> None:
    report = run_fuzz(tmp_path, Plan(port=port, seed=1, frames=frames))

    assert report.frames == frames or port == "door"  # Whose visits are as long as they get.
    assert report.answers > answers
    assert report.acknowledged > 0
    assert report.grown_bytes < MOST_MEMORY_BYTES
