"""Consensus on the metadata log: a pure Raft core, driven by events, that says what to persist, send and apply. Pure."""
