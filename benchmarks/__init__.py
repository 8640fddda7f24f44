"""Quorate beside Apache Kafka on one machine, in one run: ``python -m benchmarks``."""
