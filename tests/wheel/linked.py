"""A clean environment with the wheel and links to what is installed here of its dependencies: no index is asked."""

import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def linked_environment(wheel: Path, home: Path, *, extra: str = "", others: tuple[str, ...] = ()) -> Path:
    """The folder with its commands."""
    venv.create(home, symlinks=True)
    install = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    subprocess.run([*install, "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True)
    [packages] = home.glob("lib/python*/site-packages")
    for name in {*_needed_by("quorate", extra), *others}:
        _link(name, packages)
    return home / "bin"


def _needed_by(name: str, extra: str = "") -> set[str]:
    """The distributions that a plain ``pip install`` of this one would bring along, and those of the extra."""
    found: set[str] = set()
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in ("", extra)):
            try:
                found |= {requirement.name} | _needed_by(requirement.name)
            except PackageNotFoundError:
                continue  # For another system.
    return found


def _link(name: str, packages: Path) -> None:
    there = distribution(name)
    for top in {file.parts[0] for file in there.files or () if file.parts[0] not in ("..", "__pycache__")}:
        link = packages / top
        if not link.exists():
            link.symlink_to(Path(str(there.locate_file(top))).resolve())
