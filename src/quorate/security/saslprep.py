"""SASLprep (RFC 4013): what a name or password is when its different spellings are made the same.

Apache Kafka and librdkafka send and hash what was typed. Clients that follow the RFC prepare it first. So a password is
prepared here nowhere silently: one that both would not send alike is refused where it is chosen (``is_prepared``).
"""

import stringprep
import unicodedata
from typing import Final

_MAPPED_TO_NOTHING: Final = stringprep.in_table_b1
_OTHER_SPACES: Final = stringprep.in_table_c12
_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    #: Stored strings have no code points that Unicode 3.2 had not assigned.
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """Raises ValueError for what no name or password may contain."""
    mapped = "".join(" " if _OTHER_SPACES(each) else each for each in text if not _MAPPED_TO_NOTHING(each))
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if any(is_in_table(each) for is_in_table in _PROHIBITED):
            raise ValueError(f"U+{ord(each):04X} may not be in it")
    _check_directions(prepared)
    return prepared


def is_prepared(text: str) -> bool:
    """Whether clients that prepare it send the same as those that do not."""
    try:
        return saslprep(text) == text
    except ValueError:
        return False


def _check_directions(text: str) -> None:
    """RFC 3454, section 6: text from right to left begins and ends so, and has none from left to right in it."""
    if not any(stringprep.in_table_d1(each) for each in text):
        return
    if any(stringprep.in_table_d2(each) for each in text):
        raise ValueError("it mixes letters that are written from left to right and from right to left")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("it begins or ends with what is not written from right to left")
