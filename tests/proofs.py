"""What tests prove, as rows for the table of compatibility: client, version, feature, result and test.

A test says with ``@pytest.mark.proves(client, version, feature)`` what its success means, or with ``proves(feature)``
if the client is its parameter of that name; several tests may share a row. ``tests.proof_recorder`` keeps the results
of a run, and ``make compat`` writes them into the page, where a row stays as it is until its tests run again.
"""

import ast
import fcntl
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

from tests.peers.jars import kafka_version

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".cache" / "proofs.json"
MARK = "proves"
BEGIN, END = "<!-- proofs: begin -->\n", "<!-- proofs: end -->\n"
_HEAD = "| client or software | version | what is run | result | test |\n|---|---|---|---|---|\n"
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| \[.+?\]\(\.\./(.+?)\) \|$", re.MULTILINE)

Software = tuple[str, str]


def python_client(name: str) -> Software:
    return name, version(name)


CONFLUENT = python_client("confluent-kafka")
KAFKA_PYTHON = python_client("kafka-python")
AIOKAFKA = python_client("aiokafka")
JAVA = ("Java client", kafka_version())
KAFKA_TOOLS = ("Apache Kafka's tools", kafka_version())


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    client: str
    version: str
    feature: str
    #: "passed", "failed", or "skipped: " with the reason.
    result: str
    #: The file, from the root of the checkout.
    test: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.client, self.feature, self.test

    @property
    def was_skipped(self) -> bool:
        return self.result.startswith("skipped")

    def with_another(self, other: "Proof") -> "Proof":
        """What two tests of one row show together: a failure counts more than a success, that more than nothing."""
        if self.result == "failed" or other.was_skipped:
            return self
        return other


def together(proofs: Iterable[Proof]) -> list[Proof]:
    """One row for all tests of the same run that share it."""
    rows: dict[tuple[str, str, str], Proof] = {}
    for proof in proofs:
        rows[proof.key] = rows[proof.key].with_another(proof) if proof.key in rows else proof
    return [rows[key] for key in sorted(rows)]


def merged(known: Iterable[Proof], new: Iterable[Proof]) -> list[Proof]:
    """A new result takes the place of an older one, unless the test was skipped now."""
    rows = {proof.key: proof for proof in known}
    for proof in new:
        if not proof.was_skipped or proof.key not in rows:
            rows[proof.key] = proof
    return [rows[key] for key in sorted(rows)]


def read_results(path: Path = RESULTS) -> list[Proof]:
    return msgspec.json.decode(path.read_bytes(), type=list[Proof]) if path.exists() else []


def keep_results(new: list[Proof], path: Path = RESULTS) -> None:
    """Add to what other runs have shown; several may end at the same time."""
    if not new:
        return
    path.parent.mkdir(exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = merged(read_results(path), new)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")


def rows_of_page(page: str) -> list[Proof]:
    found = _ROW.findall(page.partition(BEGIN)[2].partition(END)[0])
    return [Proof(client=row[0], version=row[1], feature=row[2], result=row[3], test=row[4]) for row in found]


def with_rows(page: str, rows: Iterable[Proof]) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "the page lacks the mark of the table's begin"
    assert end, "the page lacks the mark of the table's end"
    lines = [
        f"| {row.client} | {row.version} | {row.feature} | {row.result} | [{Path(row.test).stem}](../{row.test}) |\n"
        for row in rows
    ]
    return "".join((before, begin, _HEAD, *lines, end, after))


def claimed(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Test file and feature of every mark in the tests, whether they run here or not."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if MARK in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == MARK:
                feature = node.args[-1]
                assert isinstance(feature, ast.Constant), f"{path}:{node.lineno}: the feature must be a plain text"
                yield path.relative_to(root).as_posix(), str(feature.value)
