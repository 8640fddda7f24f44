"""Partition replication: what followers have, what is committed, who is in sync."""
