"""The package as one zip file, for workers on other machines, which may not have it installed. Does I/O."""

import zipfile
from pathlib import Path

import quorate


def write_package_zip(folder: Path) -> Path:
    """A zip that a Python worker can put on its path."""
    target = folder / "quorate.zip"
    package = Path(quorate.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted((*package.rglob("*.py"), *package.rglob("*.c"))):
            archive.write(source, source.relative_to(package.parent))
    return target
