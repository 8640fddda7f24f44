"""The way into both commands, ``quorate`` and ``kafka-backup``, and into ``python -m quorate``."""

import os
import sys

from quorate.cli.interruption import end_at_once_when_stopped


def main() -> None:
    end_at_once_when_stopped()
    from quorate.cli.commands import main as run

    try:
        run()
    finally:
        _let_go_of_lost_terminal()


def kafka_backup() -> None:
    end_at_once_when_stopped()
    from quorate.cli.commands import kafka_backup_main as run

    try:
        run()
    finally:
        _let_go_of_lost_terminal()


def _let_go_of_lost_terminal() -> None:
    """What cannot be written any more must not decide about the exit status when the interpreter ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
