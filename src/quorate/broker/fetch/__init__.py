"""A Fetch request: which partitions it is about, what each gives now, and waiting for more."""
