"""What one thread of Python can do over TLS at most: a program that takes Produce requests and has no other task."""
