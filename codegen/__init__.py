"""Turns Apache Kafka's message definitions into the classes of ``quorate.protocol.messages``."""
