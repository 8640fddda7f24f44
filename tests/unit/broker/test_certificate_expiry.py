"""A node tells in time that its certificate ends, and is silent again with a new one."""

import logging
from typing import Final

import pytest

from quorate.broker.peer_credentials import EXPIRY_CONDITION, CertificateExpiry, is_due
from quorate.kernel.conditions import Conditions
from quorate.kernel.ids import NodeId
from quorate.security.peer_tls import PeerTls, Validity
from tests.peers.node_certificates import NodeAuthority

OURS = NodeAuthority()
_DAY_S: Final = 86_400


class HandClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.mark.parametrize(("days", "left_days"), [(365, 30), (100, 10), (1, 0.1), (3650, 30)])
def test_it_is_told_so_long_before(days: int, left_days: float) -> None:
    validity = Validity(from_s=1000, until_s=1000 + days * _DAY_S)
    due_s = validity.until_s - left_days * _DAY_S
    assert not is_due(validity, due_s - 60)
    assert is_due(validity, due_s + 60)
    assert is_due(validity, validity.until_s + 60)


def test_it_is_told_once_until_there_is_another_certificate(caplog: pytest.LogCaptureFixture) -> None:
    tls: PeerTls | None = PeerTls(OURS.issue(7), OURS.certificate, NodeId(7))
    assert tls is not None
    conditions, clock = Conditions(), HandClock()
    expiry = CertificateExpiry(NodeId(7), lambda: tls, conditions, clock)

    clock.now_s = tls.validity.from_s
    expiry.look()
    assert list(conditions) == []
    for second in range(3):
        clock.now_s = tls.validity.until_s - 60 + second
        expiry.look()
    (condition,) = conditions
    assert condition.kind == EXPIRY_CONDITION
    assert "peer_certificate_file ends at 20" in condition.sentence
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith("peer certificate expires node=7 at=20")
    clock.now_s = tls.validity.from_s + 3600
    expiry.look()
    assert list(conditions) == []


def test_a_node_without_one_has_nothing_to_tell() -> None:
    conditions = Conditions()
    CertificateExpiry(NodeId(7), lambda: None, conditions, HandClock()).look()
    assert list(conditions) == []
