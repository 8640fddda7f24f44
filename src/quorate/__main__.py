"""The way into both commands, ``quorate`` and ``kafka-backup``, and into ``python -m quorate``.

Loading the command line takes a moment. A stop that comes meanwhile, or later where nothing is under way that has to be
ended in good order, ends the process at once: there is nothing to clean up, and a traceback would say nothing.
"""

import os
import signal
import sys

#: As shells have it for a command that Ctrl-C ended.
INTERRUPTED_STATUS = 130


def main() -> None:
    _end_at_once_when_stopped()
    from quorate.cli import main as run

    try:
        run()
    finally:
        _let_go_of_lost_terminal()


def kafka_backup() -> None:
    _end_at_once_when_stopped()
    from quorate.cli.kafka_backup import main as run

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


def _end_at_once_when_stopped() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Not every system has all of them.
        # Who ignores the end of its terminal (nohup) has it ignored here, too.
        if number is not None and (name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN):
            signal.signal(number, _end)


def _end(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    try:
        os.write(2, b"quorate: stopped\n")
    finally:
        os._exit(INTERRUPTED_STATUS)


if __name__ == "__main__":
    main()
