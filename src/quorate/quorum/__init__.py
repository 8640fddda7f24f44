"""A node's part in the cluster: the quorum's log on disk, its messages, the controller, and the broker's registration.

Raft (``core``) decides what is true, the controller (``metadata.core``) what should become true. Here is the shell
around them: disk, peers, timers.
"""
