"""Whether two images are the same, at the cost of what neither shares with images that were compared before."""

from collections.abc import Mapping
from typing import Any

from quorate.metadata.core.image import MetadataImage


class EqualImages:
    """An image never changes, and shares with the one before it all that a batch of records did not touch."""

    def __init__(self) -> None:
        #: Parts that were found equal, by their addresses; they are kept, so that these stay theirs.
        self._equal: dict[tuple[int, int], tuple[object, object]] = {}

    def are_equal(self, one: MetadataImage, other: MetadataImage) -> bool:
        for field in MetadataImage.__struct_fields__:
            a, b = getattr(one, field), getattr(other, field)
            if a is not b and (id(a), id(b)) not in self._equal:
                if not (self._have_equal_values(a, b) if field == "topics" else a == b):
                    return False
                self._equal[id(a), id(b)] = a, b
        return True

    def _have_equal_values(self, one: Mapping[Any, object], other: Mapping[Any, object]) -> bool:
        if one.keys() != other.keys():
            return False
        for key, a in one.items():
            b = other[key]
            if a is not b and (id(a), id(b)) not in self._equal:
                if a != b:
                    return False
                self._equal[id(a), id(b)] = a, b
        return True
