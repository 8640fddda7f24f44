"""Kafka's protocol: messages generated from its definitions, codecs specialised from them, frames."""
