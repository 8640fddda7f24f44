"""Stock clients and tools, and raw bytes, against a node. ``--target apache-kafka`` checks the tests themselves."""
