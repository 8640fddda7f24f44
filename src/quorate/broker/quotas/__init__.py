"""Client quotas: how fast each client may write and read, and how long one that went faster is held back."""
