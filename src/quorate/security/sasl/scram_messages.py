"""The messages of SCRAM (RFC 5802): attributes of one letter with commas between them, strictly read."""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Final

_ATTRIBUTE: Final = re.compile(r"([A-Za-z]+)=([^,\0]+)")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ESCAPED_NAME: Final = re.compile(r"(?:[^=]|=2C|=3D)*")
#: Kafka's extension that says that the name is a delegation token's id.
TOKEN_EXTENSION: Final = "tokenauth"


class MalformedScram(ValueError):
    """The message is none of SCRAM's; says why."""


def read_attributes(text: str) -> dict[str, str]:
    """All attributes in their order. None may come twice."""
    attributes: dict[str, str] = {}
    for part in text.split(","):
        match = _ATTRIBUTE.fullmatch(part)
        if match is None or match[1] in attributes:
            raise MalformedScram("an attribute is malformed or comes twice")
        attributes[match[1]] = match[2]
    return attributes


def write_attributes(attributes: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in attributes.items())


def as_text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedScram("the message is not UTF-8") from None


def check_order(attributes: Mapping[str, str], *first: str) -> None:
    """The attributes that a message must have stand at its beginning; extensions come after them."""
    if tuple(attributes)[: len(first)] != first:
        raise MalformedScram(f"the message does not have the attributes {', '.join(first)} first")


def check_nonce(nonce: str) -> str:
    if _NONCE.fullmatch(nonce) is None:
        raise MalformedScram("the nonce has characters that are not printable")
    return nonce


def from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise MalformedScram("a value is not base64 where it must be") from None


def to_base64(content: bytes) -> str:
    return b64encode(content).decode()


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(name: str) -> str:
    if _ESCAPED_NAME.fullmatch(name) is None:
        raise MalformedScram("the name has an equals sign that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")
