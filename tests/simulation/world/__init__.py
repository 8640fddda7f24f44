"""A world for whole nodes: one thread, virtual time, a network and disks in memory, faults on demand, one seed.

The production classes run unchanged. Each life of a host has an event loop of its own; one scheduler runs them all.
"""
