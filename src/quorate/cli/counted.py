"""Numbers of things, as people say them."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """1 topic, 2 topics; 1 copy, 2 copies where the plural is given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
