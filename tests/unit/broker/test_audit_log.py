"""Where the audit log goes, how much of it strangers can cause, and that no name in it is more than a name."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.audit_log import AuditLog
from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.log_output import TEXT_FORMAT, JsonFormatter, LineFormatter, begin_audit_log
from quorate.broker.log_settings import AUDIT_LOGGER, AuditSettings, AuditThreshold, LogFormat
from quorate.kernel.errors import QuorateError
from quorate.security.access import Checked
from quorate.security.acls import AclOperation, AclResourceType
from quorate.security.audit import LoginAttempt
from quorate.security.authorizer import AclVerdict, Requester, Rule

DENIED, ALLOWED = AclVerdict(False, Rule.DEFAULT_DENY), AclVerdict(True, Rule.SUPER_USER)
FAILED = LoginAttempt(
    principal=None, host="10.0.0.9", listener="OUTSIDE", mechanism="PLAIN", is_allowed=False, reason="wrong name"
)
NODE = 'node_id = 1\ndata_dir = "d"\nlisten = "127.0.0.1:9092"\n'


def checked(verdict: AclVerdict = DENIED, name: str = "orders") -> Checked:
    return Checked(operation=AclOperation.READ, resource_type=AclResourceType.TOPIC, name=name, verdict=verdict)


def bob(name: str = "bob") -> Requester:
    return Requester(principal=f"User:{name}", host="10.0.0.9")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    begin_audit_log(AuditSettings())


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_it_has_a_file_of_its_own_in_a_format_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begin_audit_log(AuditSettings(file=str(tmp_path / "audit.log"), format=LogFormat.JSON))
    AuditLog().tell_access(bob(), "OUTSIDE", "Fetch", [checked(), checked(ALLOWED)])
    AuditLog().tell_login(FAILED, untold=7)

    denied, failed = (json.loads(line) for line in lines(tmp_path / "audit.log"))
    assert denied["fields"] == {
        "event": "access", "principal": "User:bob", "host": "10.0.0.9", "listener": "OUTSIDE", "api": "Fetch",
        "operation": "READ", "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL",
        "count": 1, "allowed": False, "rule": "DefaultDeny", "acl": None,
    }  # fmt: skip
    assert denied["message"].startswith("Principal = User:bob is Denied operation = READ from host = 10.0.0.9")
    assert (failed["fields"]["event"], failed["fields"]["allowed"], failed["fields"]["untold"]) == ("login", False, 7)
    assert not caplog.records
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


def test_at_debug_it_tells_what_is_allowed_and_who_logs_in(tmp_path: Path) -> None:
    begin_audit_log(AuditSettings(file=str(tmp_path / "audit.log"), level=AuditThreshold.DEBUG))
    audit = AuditLog()
    assert audit.tells_allowed()
    audit.tell_access(bob(), "OUTSIDE", "Fetch", [checked(ALLOWED)])
    audit.tell_login(LoginAttempt(principal="User:bob", host="h", listener="L", mechanism="TLS", is_allowed=True))
    allowed, login = lines(tmp_path / "audit.log")
    assert "quorate.audit Principal = User:bob is Allowed operation = READ" in allowed
    assert login.endswith("Principal = User:bob is Allowed login by TLS from host = h on listener = L")


def test_in_the_nodes_log_failed_logins_have_their_line_already(caplog: pytest.LogCaptureFixture) -> None:
    begin_audit_log(AuditSettings())
    with caplog.at_level(logging.DEBUG):
        AuditLog().tell_login(FAILED)
        AuditLog().tell_access(bob(), "OUTSIDE", "Fetch", [checked()])
    assert [record.name for record in caplog.records] == [AUDIT_LOGGER]


def test_it_can_be_off(tmp_path: Path) -> None:
    begin_audit_log(AuditSettings(file=str(tmp_path / "audit.log"), level=AuditThreshold.OFF))
    AuditLog().tell_access(bob(), "OUTSIDE", "Fetch", [checked()])
    AuditLog().tell_login(FAILED)
    assert lines(tmp_path / "audit.log") == []


def test_it_is_replaced_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    begin_audit_log(AuditSettings(file=str(path), max_bytes=64 * 1024, kept_files=2))
    audit = AuditLog(lambda: float("inf"))
    for number in range(3000):
        audit._limits.clear()
        audit.tell_access(bob(), "OUTSIDE", "Fetch", [checked(name=f"topic-{number}")])
    sizes = [each.stat().st_size for each in sorted(tmp_path.iterdir())]
    assert len(sizes) == 3
    assert max(sizes) <= 64 * 1024
    assert "topic-2999" in path.read_text()


def test_one_principal_writes_so_much_and_then_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 1000.0
    audit = AuditLog(lambda: now_s)
    with caplog.at_level(logging.INFO, logger=AUDIT_LOGGER):
        for _ in range(2000):
            audit.tell_access(bob("stranger"), "OUTSIDE", "Fetch", [checked()])
        told = len(caplog.records)
        assert told == 500
        # It hides nobody else's, and what was left out is told.
        audit.tell_access(bob(), "OUTSIDE", "Fetch", [checked()])
        assert "User:bob" in caplog.messages[-1]
        now_s += 11
        audit.tell_access(bob("stranger"), "OUTSIDE", "Fetch", [checked()])
        assert caplog.messages[-1].endswith("based on rule DefaultDeny untold = 1500")
        assert caplog.records[-1].__dict__["fields"]["untold"] == 1500


def test_many_principals_take_no_memory_for_good() -> None:
    audit = AuditLog()
    for number in range(5000):
        audit.tell_access(bob(str(number)), "OUTSIDE", "Fetch", [checked()])
    assert len(audit._limits) <= 1000


@given(st.text(max_size=40))
def test_no_name_forges_a_line_or_a_field_in_either_format(name: str) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logger = logging.getLogger(AUDIT_LOGGER)
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        AuditLog().tell_access(bob(name), name, "Fetch", [checked(name=name)])
    finally:
        logger.removeHandler(handler)
    text, whole = LineFormatter(TEXT_FORMAT).format(records[0]), JsonFormatter().format(records[0])
    assert len(text.splitlines()) == len(whole.splitlines()) == 1
    assert text.isprintable()
    assert whole.isprintable()
    fields = json.loads(whole)["fields"]
    assert (fields["principal"], fields["resource_name"], fields["allowed"]) == (f"User:{name}", name, False)


def parse(text: str) -> NodeConfig:
    return parse_node_config(NODE + text)


def test_settings_are_read_from_the_nodes_file() -> None:
    assert parse("").audit == AuditSettings()
    assert parse('[audit]\nlevel = "debug"').audit == AuditSettings(level=AuditThreshold.DEBUG)
    assert parse('[log]\nformat = "json"\n[audit]\nfile = "a"').audit.format is LogFormat.JSON
    assert parse('[log]\nformat = "json"\n[audit]\nfile = "a"\nformat = "text"').audit.format is LogFormat.TEXT


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("audit = 1", "[audit] is a table, such as level"),
        ('[audit]\nlevel = "warning"', "[audit] level must be one of 'debug', 'info', 'off', not 'warning'"),
        (
            '[audit]\nformat = "text"',
            "[audit] format is of a file: without one all goes into the node's log, see [log]",
        ),
        ("[audit]\nmax_bytes = 1000000", "[audit] max_bytes is of a file"),
        ('[audit]\nfile = "a"\nmax_bytes = 1', "[audit] max_bytes must be 65536 or more, not 1"),
        ('[audit]\nfile = ""', "[audit] file must name a file"),
        ('[audit]\nfile = "a"\nkept_files = -1', "[audit] kept_files must be 0 to 1000, not -1"),
        ('[audit]\nfiel = "a"', "[audit] unknown key 'fiel'; did you mean 'file'?"),
        ('[audit]\nfile = "x/a"\n[log]\nfile = "./x/a"', "[audit] file is that of [log]"),
        ("[audit]\nfile = 5", "[audit] "),
    ],
)
def test_a_mistake_is_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(QuorateError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match="cannot be written"):
        begin_audit_log(AuditSettings(file=str(tmp_path / "missing" / "audit.log")))
