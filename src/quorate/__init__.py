"""Quorate: a Kafka-compatible log cluster that always names the true partition leader."""

__version__ = "0.1.0"
