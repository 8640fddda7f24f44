"""Whole clusters in the simulated world: production nodes, clients, faults, and checkers that watch all of it.

``python -m tests.simulation.cluster --seed 17`` replays one run.
"""
