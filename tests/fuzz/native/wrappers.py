"""The whole module under sanitizers: the tests of its functions, run in a copy of the package that has such a module.

What the targets of the fuzz leave out is tested so: the half of each function that takes buffers from Python.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from hatch_build import compile_module, find_compiler
from quorate import __version__
from quorate.kernel.native import FILE, SWITCH
from tests.fuzz.native.run import OPTIONS, ROOT, FuzzFailed

#: Whatever calls a native function with odd arguments, or compares it with its twin.
TESTS: Final = (
    "tests/unit/backup/restore/test_plain_frames.py",
    "tests/unit/backup/segments/test_stretches.py",
    "tests/unit/client/test_regions.py",
    "tests/unit/kernel/test_native.py",
    "tests/unit/records/test_columnar.py",
)
_CFLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


def run_tests(folder: Path, *selection: str) -> str:
    """What pytest says at the end."""
    package = folder / "quorate"
    shutil.copytree(ROOT / "src/quorate", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    compile_module(ROOT / "native", package / FILE, __version__, os.environ | {"CFLAGS": _CFLAGS})
    environment = os.environ | OPTIONS | _sanitized_python(folder)
    environment.pop(SWITCH, None)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *selection, *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or "no native module" in done.stdout:
        raise FuzzFailed(done.stdout + done.stderr)
    return done.stdout.strip().splitlines()[-1]


def _sanitized_python(folder: Path) -> dict[str, str]:
    """Python itself is not compiled with them, so their library comes first, and each block of memory is malloc's."""
    compiler = find_compiler(os.environ)
    shown = subprocess.run([*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    library = shown.stdout.strip()
    if not Path(library).is_absolute():
        raise FuzzFailed(f"{shlex.join(compiler)} has no libasan.so")
    return {
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ASAN_OPTIONS": f"{OPTIONS['ASAN_OPTIONS']}:detect_leaks=0",  # The interpreter keeps what it has until its end.
    }
