"""Hypothesis without a time limit per example: other work on the machine must not fail a test."""

from hypothesis import settings

settings.register_profile("records", deadline=None)
settings.load_profile("records")
