"""The digest that ends a manifest, or a decision or plan beside a backup, by which any damage to it is found.

The last field of the JSON document is the SHA-256 of all bytes before it, so that none needs a second object to
be checked against. It is compared byte for byte, not by its meaning as JSON: one flipped bit anywhere breaks it. Every
format version ends with it.
"""

import hashlib

_FIELD = b',"sha256":"'
_END = b'"}\n'
_TAIL_BYTES = len(_FIELD) + 64 + len(_END)


def seal(document: bytes) -> bytes:
    """A JSON object, which is not empty, with the digest as its last field."""
    content = document.removesuffix(b"}")
    return content + _tail(content)


def is_sealed(data: bytes) -> bool:
    """Whether the document is, to the bit, what was sealed."""
    content = data[:-_TAIL_BYTES]
    return data[len(content) :] == _tail(content)


def _tail(content: bytes) -> bytes:
    return _FIELD + hashlib.sha256(content).hexdigest().encode() + _END
