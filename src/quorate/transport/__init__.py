"""Frames over TCP: bytes in, replies out in order. Knows nothing of what a frame means."""
