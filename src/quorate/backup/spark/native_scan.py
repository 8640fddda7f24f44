"""Which scan turns records into columns here: the compiled one where a C compiler is at hand, else Python's. Does I/O.

The library is compiled when it is first asked for, into the user's cache, and named by all that it depends on: its
source, the compiler and the machine. So an installation never needs a compiler, and never fails for want of one. Who
cannot compile reads more slowly and gets the same records.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from quorate.backup.spark.session.class_archive import cache_folder
from quorate.records.columnar import Scan, scan_payloads
from quorate.records.columnar_native import NativeScan

#: "0" in the environment does without compiled code.
SWITCH = "QUORATE_NATIVE_SCAN"
_SOURCE = "columnar_scan.c"
_FLAGS = ("-O2", "-shared", "-fPIC", "-std=gnu99")
_COMPILE_TIMEOUT_S = 60


@cache
def fastest_scan() -> Scan:
    """The same for all tasks of this process."""
    return load_native_scan(os.environ) or scan_payloads


def load_native_scan(environment: Mapping[str, str]) -> NativeScan | None:
    """None where it is switched off, or cannot be compiled or loaded."""
    compiler = _find_compiler(environment)
    if environment.get(SWITCH) == "0" or compiler is None:
        return None
    try:
        return NativeScan(_load(compiler, cache_folder(environment)), _warm_memory)
    except (OSError, AttributeError, subprocess.SubprocessError):
        return None


def _warm_memory(size_bytes: int) -> memoryview:
    """Out of Arrow's pool: used before, and not filled with zeros, which takes as long as filling it with records."""
    import pyarrow

    return memoryview(pyarrow.allocate_buffer(size_bytes))


def _find_compiler(environment: Mapping[str, str]) -> str | None:
    wanted = environment.get("CC") or "cc"
    return shutil.which(wanted, path=environment.get("PATH")) or shutil.which("gcc", path=environment.get("PATH"))


def _load(compiler: str, folder: Path) -> ctypes.CDLL:
    source = files("quorate.records").joinpath(_SOURCE).read_bytes()
    library = folder / f"columnar-scan-{_digest(source, compiler)}.so"
    if library.is_file() and library.stat().st_uid == os.getuid():
        return ctypes.CDLL(str(library))
    with tempfile.TemporaryDirectory(prefix="quorate-scan-") as workplace:
        draft = _compile(compiler, source, Path(workplace))
        # Loaded from where only this process can have written; kept for the next one if the cache allows it.
        loaded = ctypes.CDLL(str(draft))
        _keep(draft, library)
        return loaded


def _compile(compiler: str, source: bytes, workplace: Path) -> Path:
    source_path, draft = workplace / _SOURCE, workplace / "columnar_scan.so"
    source_path.write_bytes(source)
    subprocess.run(
        [compiler, *_FLAGS, "-o", str(draft), str(source_path)],
        check=True,
        capture_output=True,
        timeout=_COMPILE_TIMEOUT_S,
    )
    return draft


def _keep(draft: Path, library: Path) -> None:
    """Whole or not at all: whoever is last wins, and all are equal."""
    beside = library.with_suffix(f".{os.getpid()}.draft")
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(draft, beside)
        beside.replace(library)
    except OSError:
        beside.unlink(missing_ok=True)


def _digest(source: bytes, compiler: str) -> str:
    ingredients = (source, compiler.encode(), platform.machine().encode(), " ".join(_FLAGS).encode())
    return hashlib.sha256(b"\n".join(ingredients)).hexdigest()[:16]
