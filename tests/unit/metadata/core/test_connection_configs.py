"""How the limits of certain addresses are written."""

import pytest

from quorate.metadata.core.connection_configs import parse_overrides


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("", {}),
        ("10.0.0.7:100, 10.0.0.8:0", {"10.0.0.7": 100, "10.0.0.8": 0}),
        ("::1:5,[fe80:0:0::2]:6", {"::1": 5, "fe80::2": 6}),
        ("::ffff:10.0.0.7:5", {"10.0.0.7": 5}),
    ],
)
def test_addresses_are_read_in_all_their_forms(text: str, overrides: dict[str, int]) -> None:
    assert parse_overrides(text) == overrides


@pytest.mark.parametrize(
    "text", ["10.0.0.7", "10.0.0.7:", "10.0.0.7:x", "10.0.0.7:-1", "broker.example:5", ":5", "10.0.0:1"]
)
def test_what_is_no_address_and_number_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"10\.0|broker|:5"):
        parse_overrides(text)
