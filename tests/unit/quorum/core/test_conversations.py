"""Each script in conversations/ must be what really happens. conversation.py explains how they are written.

QUORATE_REWRITE_CONVERSATIONS=1 writes what happens into the scripts, for a reader to judge.
"""

import os
from pathlib import Path

import pytest

from tests.unit.quorum.core.conversation import replay

SCRIPTS = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_conversation(path: Path) -> None:
    script = path.read_text()
    replayed = replay(script)
    if os.environ.get("QUORATE_REWRITE_CONVERSATIONS"):
        path.write_text(replayed)
    else:
        assert replayed == script


def test_there_are_conversations() -> None:
    assert SCRIPTS
