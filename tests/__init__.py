"""Tests of Quorate. ``unit`` needs nothing but Python; ``compat`` runs real clients, and Apache Kafka where there is Java."""
