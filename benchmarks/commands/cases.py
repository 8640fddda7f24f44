"""What is measured of whole commands: cases, contenders and goals. Pure."""

from enum import StrEnum

import msgspec

PREFIX = "commands"


class Way(StrEnum):
    """Where a command's Spark comes from."""

    OWN = "a Spark of its own"
    WARM = "a warm Spark"


#: Seconds of a command on a machine that does nothing else, where what it has to copy takes none.
GOAL_S = {Way.OWN: 3.5, Way.WARM: 1.0}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that finds so many new records; a check of all that it has copied."""

    name: str
    command: str
    new_records: int


CASES = (
    Case(name="commands-incremental", command="backup", new_records=120),
    Case(name="commands-verify", command="verify", new_records=0),
    Case(name="commands-nothing-new", command="backup", new_records=0),
)


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    first_records: int
    repeats: int


FULL = CommandSettings(first_records=10_000, repeats=9)
QUICK = CommandSettings(first_records=1_000, repeats=2)
