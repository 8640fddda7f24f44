"""Connections to brokers: bytes, frames, versions, SASL, and the open connections of a client."""
