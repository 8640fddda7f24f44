"""Tests of Quorate: ``unit`` needs nothing but Python, ``compat`` runs stock clients and, with Java, Apache Kafka's."""
