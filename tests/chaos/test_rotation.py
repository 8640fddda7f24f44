"""Secret, certificates and authority are replaced under load; ``make chaos`` does it more often, and among faults."""

from pathlib import Path

from tests.chaos.rotation import rotate_under_load


def test_what_nodes_show_to_each_other_is_replaced_under_load_and_nobody_notices(tmp_path: Path) -> None:
    report = rotate_under_load(tmp_path, has_certificates=True)

    assert report.steps == 6
    assert report.acknowledged > 1_000
    # The last steps have ended what rested on the old ones: on each of three nodes, its links to two others.
    assert report.ended >= 6
