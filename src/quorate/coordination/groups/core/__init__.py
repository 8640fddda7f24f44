"""Consumer groups: committed offsets, the classic protocol, and in ``consumer`` the one of KIP-848.

``shard.GroupCoordinatorShard`` is the machine for the groups of one partition of ``__consumer_offsets``. Its runner
hands it commands, timers and the fate of its appends, and carries out the effects it returns.
"""
