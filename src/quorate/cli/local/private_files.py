"""Files that only their owner reads, written by the commands that set a node up.

What an operator has opened to others stays so: a file that is there keeps its mode.
"""

import os
from pathlib import Path

_OWNER_ONLY = 0o600
_OWNER_ONLY_FOLDER = 0o700


def make_private_folder(path: Path) -> None:
    """Folders above it are made as any other."""
    path.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """In one step: readers see the old file or the new one."""
    mode = path.stat().st_mode & 0o777 if path.exists() else _OWNER_ONLY
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY), "w") as file:
        file.write(text)
    draft.chmod(mode)
    draft.replace(path)
