"""Settings of the metadata quorum, the same on every node."""

import msgspec


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    # A follower that has heard its leader within the minimum refuses to help elect another one.
    election_timeout_min_ms: int = 600
    election_timeout_max_ms: int = 1_200
    heartbeat_interval_ms: int = 150
    # A pre-vote costs its voters no disk write, so it may be repeated sooner than an election.
    pre_vote_timeout_min_ms: int = 150
    pre_vote_timeout_max_ms: int = 300
    # After the leader's connection ended, or at the start once a majority is connected, each follower waits a random
    # part of this before its pre-vote.
    connection_jitter_ms: int = 40
    # A leader that has not heard a majority for this long steps down.
    quorum_check_interval_ms: int = 1_200
    # A leadership transfer that has not happened by then is given up, and proposals are taken again.
    transfer_timeout_ms: int = 1_200
    # A snapshot that was not acknowledged by then is sent again.
    snapshot_retry_ms: int = 5_000
    max_entries_bytes_per_append: int = 1 << 20
    max_appends_in_flight: int = 64
    # Proposals are refused beyond this, lest a leader without followers fills its memory.
    max_uncommitted_entries: int = 10_000
    # How far a learner may be behind when it becomes a voter.
    max_promotion_lag_entries: int = 100
    # Kept in memory behind a snapshot, so that a follower slightly behind needs no snapshot.
    entries_kept_behind_snapshot: int = 1_000

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_interval_ms < self.election_timeout_min_ms < self.election_timeout_max_ms:
            raise ValueError("need 0 < heartbeat_interval_ms < election_timeout_min_ms < election_timeout_max_ms")
        if not 0 < self.pre_vote_timeout_min_ms < self.pre_vote_timeout_max_ms:
            raise ValueError("need 0 < pre_vote_timeout_min_ms < pre_vote_timeout_max_ms")
