"""What the commands that run on Spark share: its options, and who reads what they print."""

from enum import StrEnum
from typing import Annotated

import typer

MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master: local[*], spark://host:7077, yarn …; wins over the file.")
]
RemoteOption = Annotated[
    str | None, typer.Option("--remote", help="Spark Connect server, sc://host:15002; wins over the file.")
]


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people or for machines.")]
