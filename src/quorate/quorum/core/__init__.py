"""Consensus on the metadata log: a sans-I/O Raft core, driven by events, that says what to persist, send and apply.

``node.RaftNode`` is the whole of it to a shell. ``events`` go in, a ``ready.Ready`` comes out; ``outcomes`` answer what
the shell asked for. Inside, ``roles`` and ``leader`` are the roles over one ``state``; each returns the change of role
that it asks for.
"""
