"""What a seed makes of a cluster: who is in it, how it is set up, which faults it will see."""

from random import Random

import msgspec

from quorate.metadata.core.placement import LeaderPlacement

#: Neither dense nor small: nothing may take an id for an index.
_NODE_IDS = (1, 2, 3, 4, 5, 7, 12, 100, 4001, 30000)
_ROT = "rot"
#: Of all seeds without changes of the membership, whose disks rot now and then.
_ROTTEN_PART = 0.3
_STRANGE_PART = 0.3
_CHANGED_SECRETS_PART = 0.15


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    heartbeat_ms: int
    session_ms: int
    entries_between_snapshots: int
    entries_kept_behind_snapshot: int
    placement: LeaderPlacement
    clients: int
    think_s: float
    fault_count: int
    longest_fault_s: float
    faults: tuple[str, ...]
    #: Learners become voters, and a voter leaves, while all goes on.
    changes_membership: bool
    #: Somebody who knows all but the secret is in the network.
    has_stranger: bool = False
    #: The secret is replaced, in three steps.
    changes_secret: bool = False

    @property
    def node_ids(self) -> tuple[int, ...]:
        return self.voters + self.learners


def draw_shape(seed: int, all_faults: tuple[str, ...]) -> Shape:
    """Each seed takes a part of the faults, so that now and then one of them has the cluster to itself."""
    random = Random(f"{seed}/shape")
    voters = random.choices([1, 3, 5], [2, 12, 3])[0]
    learners = random.choices([0, 1, 2], [6, 3, 1])[0]
    ids = random.sample(_NODE_IDS, voters + learners)
    heartbeat_ms, session_ms = random.choice([(200, 1_000), (500, 3_000), (2_000, 9_000)])
    entries_between_snapshots = random.choice([4, 15, 5_000])
    faults = tuple(fault for fault in all_faults if fault != _ROT and random.random() < 0.4)
    shape = Shape(
        voters=tuple(sorted(ids[:voters])),
        learners=tuple(sorted(ids[voters:])),
        heartbeat_ms=heartbeat_ms,
        session_ms=session_ms,
        entries_between_snapshots=entries_between_snapshots,
        entries_kept_behind_snapshot=random.choice([0, 3, 1_000]),
        placement=random.choice(list(LeaderPlacement)),
        clients=random.randint(1, 2),
        think_s=random.choice([0.05, 0.2]),
        fault_count=random.randint(2, 6),
        longest_fault_s=random.choice([0.8, 2.0, 4.0]),
        faults=faults or tuple(fault for fault in all_faults if fault != _ROT),
        changes_membership=voters + learners > 2 and random.random() < 0.3,
        has_stranger=Random(f"{seed}/stranger").random() < _STRANGE_PART,
        changes_secret=Random(f"{seed}/secret").random() < _CHANGED_SECRETS_PART,
    )
    may_rot = _ROT in all_faults and not shape.changes_membership and Random(f"{seed}/rot").random() < _ROTTEN_PART
    return msgspec.structs.replace(shape, faults=(*shape.faults, _ROT)) if may_rot else shape
