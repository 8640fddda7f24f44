"""Coordinators of groups and of transactions: one partition of an internal topic is the log of each."""
