"""What the tests here prove, as lines for the table of compatibility: client, version, feature and result.

A test says with ``@pytest.mark.proves(client, version, feature)`` what its success means. Results are merged into the
file, so that a run of some tests leaves what others have shown; ``scripts/compatibility_table.py`` makes the table.
"""

from pathlib import Path

import msgspec

RESULTS = Path(__file__).parents[2] / ".cache" / "ecosystem.json"


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    client: str
    version: str
    feature: str


class ProofResult(Proof, frozen=True, kw_only=True):
    #: "passed", "failed", or "skipped: " with the reason.
    result: str

    @property
    def was_skipped(self) -> bool:
        return self.result.startswith("skipped")


def read_results(path: Path = RESULTS) -> list[ProofResult]:
    return msgspec.json.decode(path.read_bytes(), type=list[ProofResult]) if path.exists() else []


def merge_results(new: list[ProofResult], path: Path = RESULTS) -> None:
    """A result takes the place of an older one of the same client and feature, unless the test was skipped now."""
    if not new:
        return
    known = {(each.client, each.feature): each for each in read_results(path)}
    for each in new:
        if not each.was_skipped or (each.client, each.feature) not in known:
            known[each.client, each.feature] = each
    merged = [result for _, result in sorted(known.items())]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(merged), indent=2) + b"\n")
