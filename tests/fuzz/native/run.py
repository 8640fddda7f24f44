"""Compiles a target with sanitizers, and runs it. What a run does depends on its seed and the inputs' indexes alone."""

import os
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hatch_build import CannotCompile, find_compiler
from tests.fuzz.native.corpus import SEEDS

ROOT = Path(__file__).parents[3]
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
_HERE = Path(__file__).parent
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=256:allocator_may_return_null=0:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
}
_COMPILE_TIMEOUT_S = 600


class Report(NamedTuple):
    inputs: int
    taken: int

    def __str__(self) -> str:
        return f"{self.inputs:,} inputs, {self.taken:,} of them taken"


class FuzzFailed(Exception):
    """What the sanitizers said, and which input it was."""


@cache
def missing() -> str | None:
    """Why nothing can be fuzzed here: sanitizers are a part of the compiler that may not be installed."""
    try:
        _compile([*find_compiler(os.environ), *FLAGS, "-x", "c", "-", "-o", os.devnull], "int main(void) { return 0; }")
    except (CannotCompile, FuzzFailed) as reason:
        return str(reason)
    return None


def build(target: str, folder: Path) -> Path:
    sources = [_HERE / "fuzz.c", _HERE / f"{target}.c", *sorted((ROOT / "native").glob("*_core.c"))]
    program = folder / target
    command = [*find_compiler(os.environ), *FLAGS, f"-I{ROOT / 'native'}", *map(str, sources), "-o", str(program)]
    _compile(command)
    return program


def _compile(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    if done.returncode:
        raise FuzzFailed(f"{shlex.join(command[:1])} failed: {done.stderr.strip()}")


def run(program: Path, *, seed: int, first: int, inputs: int) -> Report:
    corpus = program.with_suffix(".corpus")
    corpus.write_bytes(b"".join(len(each).to_bytes(4) + each for each in SEEDS[program.name]()))
    done = subprocess.run(
        [str(program), str(seed), str(first), str(inputs), str(corpus)],
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | OPTIONS,
        check=False,
    )
    if done.returncode:
        raise FuzzFailed(done.stderr)
    return Report(inputs, int(done.stdout))
