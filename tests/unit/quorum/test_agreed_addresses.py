"""Where other nodes are: what was agreed on last, whatever was asked for before."""

from msgspec.structs import replace

from quorate.kernel.address import Address
from quorate.kernel.ids import NodeId
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.quorum import AgreedAddresses
from tests.unit.metadata.core.cluster import Cluster

SELF, VOTER, LEARNER, JOINED = map(NodeId, (1, 2, 3, 7))


def test_the_registration_comes_before_the_membership_and_that_before_the_configuration() -> None:
    addresses = AgreedAddresses(SELF, {SELF: Address("me", 1), VOTER: Address("configured", 1)})
    assert addresses.of(Membership(), {}) == {VOTER: Address("configured", 1)}

    members = [Member(SELF, "me:1", is_voter=True), Member(VOTER, "agreed:2", is_voter=True)]
    membership = Membership.of([*members, Member(LEARNER, "learner:3", is_voter=False)])
    assert addresses.of(membership, {}) == {VOTER: Address("agreed", 2), LEARNER: Address("learner", 3)}

    brokers = Cluster(nodes=(JOINED,)).image.brokers
    assert addresses.of(membership, brokers)[JOINED] == Address("host-7", 9093)
    moved = {JOINED: replace(brokers[JOINED], peer_address="moved:4")}
    assert addresses.of(membership, moved)[JOINED] == Address("moved", 4)
    assert JOINED not in addresses.of(membership, {})
    assert addresses.of(Membership(), {}) == {VOTER: Address("configured", 1)}


def test_what_is_no_address_is_left_out() -> None:
    membership = Membership.of([Member(VOTER, "", is_voter=True), Member(LEARNER, "no address", is_voter=False)])
    assert AgreedAddresses(SELF, {}).of(membership, {}) == {}
