"""A short fuzz of the native module under sanitizers; ``make fuzz`` gives each target ten million inputs."""

from pathlib import Path

import pytest

from tests.fuzz.native import run as runs
from tests.fuzz.native.corpus import SEEDS
from tests.fuzz.native.run import ROOT, FuzzFailed, build, run
from tests.fuzz.native.wrappers import run_tests

INPUTS = 20_000


@pytest.fixture(autouse=True)
def _sanitizers() -> None:
    if reason := runs.missing():
        pytest.skip(f"no compiler with sanitizers: {reason}")


@pytest.mark.parametrize("target", SEEDS)
def test_hostile_bytes_are_taken_or_refused_within_the_given_memory(target: str, tmp_path: Path) -> None:
    report = run(build(target, tmp_path), seed=1, first=0, inputs=INPUTS)
    assert 0 < report.taken <= INPUTS


@pytest.mark.timeout(600)
def test_odd_arguments_are_refused_within_the_given_memory(tmp_path: Path) -> None:
    assert "passed" in run_tests(tmp_path, "-k", "refused or filled or change or checksum")


def test_every_core_of_the_module_has_a_target() -> None:
    cores = {path.name.removesuffix("_core.c") for path in (ROOT / "native").glob("*_core.c")}
    assert cores <= SEEDS.keys()


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("return data[size];", "heap-buffer-overflow"),
        ("volatile int most = 2147483647; return most + (int)size == 1;", "signed integer overflow"),
        ("CHECK(size < 9); return 0;", "does not hold: size < 9"),
        ("fuzz_memory(size + 1); return 0;", "LeakSanitizer"),
    ],
)
def test_mistakes_are_found(mistake: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong.c").write_text(
        f'#include "fuzz.h"\nint fuzz_one(const uint8_t *data, size_t size) {{ (void)data; {mistake} }}\n'
    )
    monkeypatch.setitem(SEEDS, "wrong", lambda: [b"one", b"and another"])
    monkeypatch.setattr(runs, "_HERE", _with_driver(tmp_path))
    with pytest.raises(FuzzFailed, match=words) as failure:
        run(build("wrong", tmp_path), seed=1, first=0, inputs=100)
    if words != "LeakSanitizer":  # Which looks at the end.
        assert "the input with index" in str(failure.value)


def _with_driver(folder: Path) -> Path:
    for name in ("fuzz.c", "fuzz.h"):
        (folder / name).write_bytes((Path(runs.__file__).parent / name).read_bytes())
    return folder
