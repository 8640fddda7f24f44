"""Who is let in: Kafka's limits on connections, and the way in that they leave for operators."""

import msgspec

from quorate.transport.acceptor import Admission, ConnectionCaps, ConnectionQuotas, RefusedConnections

CLIENT, OTHER = "10.0.0.7", "10.0.0.8"


class Door:
    """The quotas, with limits that can be changed while it is open."""

    def __init__(self, **limits: object) -> None:
        self.caps = msgspec.convert(limits, ConnectionCaps)
        self.quotas = ConnectionQuotas(lambda: self.caps)

    def knock(self, address: str = CLIENT, now_s: float = 0.0, *, is_local: bool = False) -> Admission:
        verdict, _ = self.quotas.judge(address, now_s, is_local=is_local)
        if verdict in (Admission.ADMIT, Admission.ADMIT_RESERVED):
            self.quotas.opened(address)
        return verdict


def test_without_limits_everybody_is_let_in() -> None:
    door = Door()
    assert {door.knock() for _ in range(10_000)} == {Admission.ADMIT}


def test_max_connections_lets_others_wait_until_one_ends() -> None:
    door = Door(max_connections=2)
    assert [door.knock(), door.knock(OTHER), door.knock()] == [Admission.ADMIT, Admission.ADMIT, Admission.WAIT]
    door.quotas.closed(OTHER)
    assert door.knock() is Admission.ADMIT


def test_max_connections_per_ip_refuses_that_address_alone() -> None:
    door = Door(max_per_address=1)
    assert [door.knock(), door.knock(), door.knock(OTHER)] == [Admission.ADMIT, Admission.REFUSE, Admission.ADMIT]
    door.quotas.closed(CLIENT)
    assert door.knock() is Admission.ADMIT


def test_overrides_hold_for_their_address_in_both_directions() -> None:
    door = Door(max_per_address=1, per_address={CLIENT: 2, OTHER: 0})
    assert [door.knock() for _ in range(3)] == [Admission.ADMIT, Admission.ADMIT, Admission.REFUSE]
    assert door.knock(OTHER) is Admission.REFUSE
    assert door.quotas.judge(OTHER, 0.0, is_local=False)[1] == "max.connections.per.ip.overrides"


def test_max_connection_creation_rate_lets_wait_who_comes_too_fast() -> None:
    door = Door(max_per_second=2)
    assert [door.knock(now_s=10.0) for _ in range(3)] == [Admission.ADMIT, Admission.ADMIT, Admission.WAIT]
    assert [door.knock(now_s=10.5) for _ in range(2)] == [Admission.ADMIT, Admission.WAIT]
    assert [door.knock(now_s=1000.0) for _ in range(3)] == [Admission.ADMIT, Admission.ADMIT, Admission.WAIT]


def test_a_limit_counts_from_the_moment_it_is_changed() -> None:
    door = Door()
    assert [door.knock() for _ in range(5)] == [Admission.ADMIT] * 5
    door.caps = ConnectionCaps(max_connections=3)
    assert door.knock() is Admission.WAIT
    door.caps = ConnectionCaps()
    assert door.knock() is Admission.ADMIT


def test_limits_of_zero_lock_nobody_out_who_is_on_the_machine() -> None:
    for limits in ({"max_connections": 0}, {"max_per_address": 0}, {"max_per_second": 0}):
        door = Door(**limits)
        assert door.knock() in (Admission.WAIT, Admission.REFUSE)
        assert door.knock(is_local=True) is Admission.ADMIT_RESERVED


def test_the_last_descriptors_are_kept_for_clients_on_the_machine() -> None:
    quotas = ConnectionQuotas(ConnectionCaps, 40)
    for _ in range(32):
        assert not quotas.is_crowded(0, is_local=False)
        quotas.opened(CLIENT)
    assert quotas.is_crowded(0, is_local=False)
    assert not quotas.is_crowded(7, is_local=True)
    assert quotas.is_crowded(8, is_local=True)
    quotas.closed(CLIENT)
    assert not quotas.is_crowded(0, is_local=False)


def test_refused_connections_are_counted_and_told_of_now_and_then() -> None:
    refused = RefusedConnections()
    lines = [refused.note("max.connections.per.ip", CLIENT, now_s) for now_s in (0.0, 1.0, 2.0, 30.0)]
    assert [line is not None for line in lines] == [True, False, False, True]
    assert refused.count == 4
    assert str(lines[-1]).endswith("count=4 untold=2")
