"""The subject of a certificate as Java writes it (RFC 2253), so that mapping rules mean the same as there.

Only of certificates that OpenSSL has accepted: what is read here is well-formed DER.
"""

from collections.abc import Iterator
from typing import Final

#: The attributes that RFC 2253 has a name for. Java writes any other as its number and the value's bytes.
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: The codec of each string type.
_STRINGS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_VERSION: Final = 0xA0


def subject_of(certificate: bytes) -> str:
    """Of a certificate in DER, as ``ssl.SSLSocket.getpeercert(binary_form=True)`` gives it: ``CN=alice,O=example``.

    Raises ValueError where it is none.
    """
    try:
        ((_, whole, _),) = _elements(certificate)
        _, to_be_signed, _ = next(_elements(whole))
        fields = [field for field in _elements(to_be_signed) if field[0] != _VERSION]
        # Serial number, algorithm, issuer, validity, subject.
        return ",".join(_part(part) for part in reversed([content for _, content, _ in _elements(fields[4][1])]))
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("it is no certificate whose subject can be read") from error


def _part(content: bytes) -> str:
    return "+".join(_attribute(attribute) for _, attribute, _ in _elements(content))


def _attribute(content: bytes) -> str:
    (_, number, _), (tag, value, encoded) = _elements(content)
    number_text = _object_id(number)
    name = _NAMES.get(number_text)
    if name is None or tag not in _STRINGS:
        return f"{name or number_text}=#{encoded.hex()}"
    return f"{name}={_escape(value.decode(_STRINGS[tag]))}"


def _escape(value: str) -> str:
    core = value.strip(" ")
    leading = len(value) - len(value.lstrip(" "))
    trailing = len(value) - len(core) - leading
    escaped = "".join("\\" + each if each in _ESCAPED else each for each in core)
    return "\\ " * leading + escaped + "\\ " * trailing


def _elements(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each element's tag, its content, and all of it as it is encoded."""
    position = 0
    while position < len(content):
        start = position
        tag, length = content[position], content[position + 1]
        position += 2
        if length & 0x80:
            width = length & 0x7F
            length = int.from_bytes(content[position : position + width])
            position += width
        end = position + length
        if end > len(content):
            raise IndexError("an element is longer than what it is in")
        yield tag, content[position:end], content[start:end]
        position = end


def _object_id(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:]))
