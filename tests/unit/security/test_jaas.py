"""JAAS entries out of Kafka's settings."""

import pytest

from quorate.kernel.errors import QuorateError
from quorate.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_an_entry_has_a_module_and_options() -> None:
    entry = parse_jaas(f'{PLAIN} required username="admin"\n  password="a\\"b;=c" user_admin=\'x\' user_bob=plain ;\n')

    assert entry.login_module == PLAIN
    assert entry.options == {"username": "admin", "password": 'a"b;=c', "user_admin": "x", "user_bob": "plain"}
    assert entry.passwords == {"admin": "x", "bob": "plain"}
    assert parse_jaas("Module required;").options == {}


def test_an_entry_is_shown_without_its_options() -> None:
    assert "secret" not in repr(parse_jaas('Module required password="secret";'))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Module",
        "Module;",
        'Module required password="hidden"',
        'Module needed password="hidden";',
        'Module required password="hidden;',
        "Module required password hidden;",
        'Module required "password"="hidden";',
        'Module required password="hidden" password="hidden";',
        'Module required password="hidden"; Other required;',
        "Module required password=hidden more;",
    ],
)
def test_what_is_no_entry_is_one_sentence_that_shows_no_secret(text: str) -> None:
    with pytest.raises(QuorateError) as raised:
        parse_jaas(text, "sasl.jaas.config")

    assert str(raised.value).startswith("sasl.jaas.config")
    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)
