"""Keeping what lies on the disk as it was written: checks, and repairs from other replicas."""
