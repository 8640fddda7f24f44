"""Object storage: the port, local and cloud storages, URLs, names, and documents read with suspicion."""
