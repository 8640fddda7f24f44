"""Reads a file of settings that a user wrote; what cannot be read is told in one sentence."""

from pathlib import Path

from quorate.kernel.errors import QuorateError


def read_settings_file(path: Path) -> str:
    """UTF-8, whatever the locale says; a byte order mark is passed over."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise QuorateError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise QuorateError(f"cannot read {path}: it is not UTF-8 text") from None
