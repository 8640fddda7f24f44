"""Texts that somebody else chose, kept short in what is said of them."""

#: Longer than any path or sentence of ours.
MOST_CHARACTERS = 1000


def clip(text: str, limit: int = MOST_CHARACTERS) -> str:
    """The first part of the text, and how much is left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
