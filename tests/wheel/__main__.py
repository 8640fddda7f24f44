"""Build sdist and wheel, and try the wheel on every Python that is here: ``python -m tests.wheel [--output dist]``.

Each gets a clean environment of its own, filled from the package index, and runs ``smoke.py`` in it twice: with the
native module and without. At the end the packages lie in the output folder; PyPI's checker has looked at them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.wheel.build import ROOT, build_sdist, build_wheel

OLDEST = (3, 11)
_CLIENT = "confluent-kafka>=2.8"
_CHECKER = "twine>=6"
_SMOKE = Path(__file__).parent / "smoke.py"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.wheel", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="a folder for what is built")
    parser.add_argument("--no-backup", action="store_true", help="without Spark")
    parser.add_argument("--only", metavar="3.x", help="one Python of those that are here")
    options = parser.parse_args()
    pythons = {minor: place for minor, place in find_pythons().items() if options.only in (None, minor)}
    if not pythons:
        parser.error(f"no such Python here: {options.only}")
    with tempfile.TemporaryDirectory(prefix="quorate-wheel-") as folder:
        place = Path(folder)
        sdist = build_sdist(place)
        wheel = build_wheel(sdist, place)
        _check_metadata(place, [sdist, wheel])
        for version, python in pythons.items():
            print(f"Python {version}: {wheel.name}", flush=True)
            _try(python, wheel, place / version, with_backup=not options.no_backup)
        options.output.mkdir(parents=True, exist_ok=True)
        for path in (sdist, wheel):
            print(f"built {shutil.copy(path, options.output)}")
    if "-linux_" in wheel.name:
        print("For PyPI, auditwheel gives this wheel the name of the systems that it fits: see CONTRIBUTING.md.")
    return 0


def find_pythons() -> dict[str, Path]:
    """One of each minor version that can make environments, the newest of each."""
    named = (shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], OLDEST[1] + 20))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places: Iterator[str | Path | None] = chain([sys.executable], named, pyenv.glob("versions/3.*/bin/python3"))
    found: dict[str, tuple[tuple[int, ...], Path]] = {}
    for place in (Path(each) for each in places if each is not None):
        version = _version(place)
        minor = ".".join(map(str, version[:2]))
        if version >= OLDEST and (minor not in found or version > found[minor][0]):
            found[minor] = (version, place)
    return {minor: place for minor, (_, place) in sorted(found.items(), key=lambda item: item[1][0])}


def _version(python: Path) -> tuple[int, ...]:
    """Empty where it cannot be run, or has not what an environment needs."""
    program = "import ensurepip, venv, sys; print(*sys.version_info[:3])"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def _check_metadata(place: Path, packages: list[Path]) -> None:
    python = _environment(Path(sys.executable), place / "checker")
    _pip(python, _CHECKER)
    subprocess.run([str(python), "-m", "twine", "check", "--strict", *map(str, packages)], check=True)
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    if any(".example" in url for url in urls.values()):
        print("Not for PyPI yet: [project.urls] of pyproject.toml has a place holder for the project's address.")


def _try(python: Path, wheel: Path, place: Path, *, with_backup: bool) -> None:
    installed = _environment(python, place)
    constraints = ["-c", str(ROOT / "constraints.txt")]
    if with_backup:
        _pip(installed, f"{wheel}[backup]", _CLIENT, *constraints)
    else:
        _pip(installed, str(wheel), _CLIENT, *constraints)
    for environment in _kernels():
        kernel = "Python" if environment else "native"
        arguments = [kernel, "--backup"] if with_backup else [kernel]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUORATE"))}
        subprocess.run([str(installed), str(_SMOKE), *arguments], check=True, cwd=place, env=clean | environment)


def _kernels() -> Iterator[dict[str, str]]:
    yield {}
    yield {"QUORATE_NATIVE": "0"}


def _environment(python: Path, place: Path) -> Path:
    subprocess.run([str(python), "-m", "venv", str(place)], check=True)
    return place / "bin" / "python"


def _pip(python: Path, *packages: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
