"""The parts of the recording, each with the node that it is asked of."""

from pathlib import Path
from typing import Final

from tests.compat.security_matrix.conditions import CONDITIONS, USERS
from tests.compat.security_matrix.conversations import talk
from tests.compat.security_matrix.door import ask_at_the_door
from tests.compat.security_matrix.matrix import cells, play
from tests.compat.security_matrix.patterns import subscribe
from tests.compat.security_matrix.recording import Outcomes, gathered
from tests.compat.security_matrix.targets import running
from tests.compat.security_matrix.world import World

PARTS: Final = (
    "with an authorizer",
    "subscribed by pattern",
    "at the door",
    "conversations",
    "without an authorizer",
)
#: Whom nobody asks what they may do, with and without a login.
_EVERYBODY = tuple(condition for condition in CONDITIONS if condition.name in ("nobody logged in", "no ACL"))


def _with_authorizer(world: World) -> dict[str, Outcomes]:
    world.build()
    return {
        "with an authorizer": gathered(play(world, cells())),
        "subscribed by pattern": subscribe(world),
        "at the door": ask_at_the_door(world),
        "conversations": talk(world),
    }


def outcomes_of(kind: str, folder: Path) -> dict[str, Outcomes]:
    """Of two nodes of the kind, one after the other."""
    found: dict[str, Outcomes] = {}
    with running(kind, folder, USERS, authorizes=True) as target:
        found |= _with_authorizer(World(target))
    with running(kind, folder / "open", USERS, authorizes=False) as target:
        found |= _without_authorizer(World(target, authorizes=False))
    return found


def _without_authorizer(world: World) -> dict[str, Outcomes]:
    world.build()
    return {"without an authorizer": gathered(play(world, cells(conditions=_EVERYBODY)))}
