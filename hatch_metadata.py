"""The long description: README.md with absolute links, since there are no files beside it where it is shown."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        base = f"{metadata['urls']['Source']}/blob/v{metadata['version']}/"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, base)}


def with_absolute_links(text: str, base: str) -> str:
    """Those in code stay as they are."""
    parts = _FENCED.split(text)
    return "".join(part if index % 2 else _LINK.sub(rf"]({base}\1)", part) for index, part in enumerate(parts))
