"""What stops a backup is told in one line, whatever somebody has put into a name."""

import pickle

from quorate.backup.errors import BackupError, DamagedManifest, DamagedSegment


def test_an_error_is_one_printable_line_whatever_a_name_in_it_holds() -> None:
    for error in (DamagedManifest("topic a\nb\x1b[2J is gone"), DamagedSegment("s\r", "at\u2028the start", "no\x00")):
        assert str(error).isprintable()
    assert str(DamagedManifest("topic a\nb")) == "topic a\\nb"


def test_an_error_says_the_same_behind_the_border_of_a_process() -> None:
    error = BackupError("caf\u00e9 C:\\new \n")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
