"""A node's part in the cluster: the quorum's log on disk, its messages, the controller, and the broker's registration.

Raft decides what is true (``raft``, pure), the controller what should become true (``metadata``, pure). Here is the
shell around them: disk, peers, timers.
"""
