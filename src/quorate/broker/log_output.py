"""Where a node's log goes, and how its lines look."""

import logging
from pathlib import Path

from quorate.broker.log_file import LogFile
from quorate.broker.log_lines import TEXT_FORMAT, JsonFormatter, LineFormatter
from quorate.broker.log_settings import LogFormat, LogSettings


def begin_log(settings: LogSettings) -> None:
    """Have everything that this process logs go there. ``QuorateError`` where the file cannot be written."""
    handler: logging.Handler = logging.StreamHandler()
    if settings.file is not None:
        handler = LogFile(Path(settings.file), settings.max_bytes, settings.kept_files)
    handler.setFormatter(JsonFormatter() if settings.format is LogFormat.JSON else LineFormatter(TEXT_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False  # A line that cannot be written is lost, and nothing else.
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    logging.getLogger("quorate").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.INFO))  # What libraries say in detail is not ours.
