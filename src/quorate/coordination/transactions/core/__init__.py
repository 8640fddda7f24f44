"""Transactions, as their coordinator sees them (KIP-98, KIP-360, KIP-890).

``shard.TransactionCoordinatorShard`` is the machine for the transactional ids of one partition of
``__transaction_state``. Its runner hands it commands, timers, the fate of its appends and of its markers, and carries
out the effects it returns.
"""
