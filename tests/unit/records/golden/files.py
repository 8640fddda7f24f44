"""Where the golden files are."""

from pathlib import Path

FOLDER = Path(__file__).parent
BATCH_FILES = sorted(FOLDER.glob("*.log"))
MESSAGE_SET_FILES = sorted(FOLDER.glob("*.messages"))
