"""What bytes are handed around as, where nobody cares who owns them."""

#: A memoryview is one of single bytes.
Buffer = bytes | bytearray | memoryview
