"""client.properties: Java's format, and secrets that stand elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import QuorateError
from quorate.security.jaas import parse_jaas
from quorate.security.properties import parse_properties, resolve_references, write_properties

JAVA = r"""
# a comment
! another
security.protocol=SASL_SSL
  sasl.mechanism : SCRAM-SHA-512
sasl.jaas.config = org.Module required \
    username="alice" \
    password="a\\b=c:d";
empty=
alone
key\ with\=signs value
tab=a\tb\u00e9\ud83d\ude00
backslash=C:\\x\\
twice=1
twice=2
# goes on \
comment.is.over=yes
"""


def test_javas_format() -> None:
    assert parse_properties(JAVA) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'org.Module required username="alice" password="a\\b=c:d";',
        "empty": "",
        "alone": "",
        "key with=signs": "value",
        "tab": "a\tbé😀",
        "backslash": "C:\\x\\",
        "twice": "2",
        "comment.is.over": "yes",
    }
    assert parse_properties("a=1\r\nb=2\rc=3\\") == {"a": "1", "b": "2", "c": "3"}
    assert parse_properties("") == {}


@pytest.mark.parametrize("text", ["=hidden", "a=\\u12 hidden", ":hidden"])
def test_what_cannot_be_read_is_told_by_its_line(text: str) -> None:
    with pytest.raises(QuorateError, match="line 2") as raised:
        parse_properties("x=1\n" + text)

    assert "hidden" not in str(raised.value)


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x0b\x0c\x1c\x1d\x1e\x85"), max_size=20
)


@given(st.dictionaries(TEXTS.filter(str.strip), TEXTS, max_size=5))
def test_what_is_written_is_read_again(properties: dict[str, str]) -> None:
    assert parse_properties(write_properties(properties, "made\nby a test")) == properties


def test_what_is_written_is_ascii_as_java_reads_no_utf_8() -> None:
    assert write_properties({"a é": "ü 😀"}) == "a\\ \\u00e9=\\u00fc \\ud83d\\ude00\n"


def files(path: str) -> str:
    if path == "/run/secret":
        return "s3cret\n"
    raise FileNotFoundError(2, "No such file or directory")


def test_secrets_stand_elsewhere() -> None:
    resolved = resolve_references(
        {"a": "x${NAME}y", "b": "${file:/run/secret}", "c": "$NAME ${", "d": "${NAME}${NAME}"},
        {"NAME": "${OTHER}"},
        files,
    )

    assert resolved == {"a": "x${OTHER}y", "b": "s3cret", "c": "$NAME ${", "d": "${OTHER}${OTHER}"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${MISSING}", "password: the environment has no variable MISSING"),
        ("${file:/nowhere}", "password: /nowhere cannot be read: No such file"),
        ("${a b}", "password: .* names neither a variable nor a file"),
        ("${env:NAME}", "password: .* names neither a variable nor a file"),
    ],
)
def test_what_is_not_there_is_one_sentence(value: str, message: str) -> None:
    with pytest.raises(QuorateError, match=message):
        resolve_references({"password": value}, {}, files)


@pytest.mark.parametrize("secret", ["plain", 'a" username="root', "it's", "back\\slash", "semi;colon = x", ""])
@pytest.mark.parametrize("option", ['"${SECRET}"', "'${SECRET}'", "${SECRET}"])
def test_in_a_login_module_a_secret_is_one_value_whatever_is_in_it(secret: str, option: str) -> None:
    properties = {"listener.name.a.plain.sasl.jaas.config": f"Module required username=a password={option};"}
    [resolved] = resolve_references(properties, {"SECRET": secret}, files).values()

    assert parse_jaas(resolved).options == {"username": "a", "password": secret}


def test_a_whole_login_module_can_stand_elsewhere() -> None:
    properties = {"sasl.jaas.config": "${JAAS}"}
    [resolved] = resolve_references(properties, {"JAAS": 'Module required password="x";'}, files).values()

    assert parse_jaas(resolved).options == {"password": "x"}
