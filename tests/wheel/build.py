"""Builds the sdist, and the wheel from what is in the sdist: a file that it lacks is found here."""

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_sdist(folder: Path) -> Path:
    _hatchling(ROOT, "sdist", folder, os.environ)
    [sdist] = folder.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    before = set(folder.glob("*.whl"))
    with tempfile.TemporaryDirectory(prefix="quorate-sdist-") as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        [sources] = Path(unpacked).iterdir()
        _hatchling(sources, "wheel", folder, environment)
    [wheel] = set(folder.glob("*.whl")) - before
    return wheel


def _hatchling(sources: Path, kind: str, folder: Path, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL, env=dict(environment))
