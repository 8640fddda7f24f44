"""Segments: the objects that hold record batches, written, read and verified."""
