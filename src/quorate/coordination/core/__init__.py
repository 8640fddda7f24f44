"""What groups and transactions have in common: a shard is told events and answers with effects.

A shard is the machine for what one partition of an internal topic holds: groups, or transactional ids.
"""
