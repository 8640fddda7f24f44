"""When a listener reads its files again, and what it does with what it finds."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quorate.broker.client_listeners import ListenerTls, listener_tls_settings
from quorate.kernel.errors import QuorateError
from quorate.security.certificates import Issued, Subject, issue, make_authority
from quorate.security.listeners import ListenerSettings, parse_listeners
from quorate.security.tls_settings import ClientAuth

NOW = datetime.now(UTC)
AUTHORITY = make_authority("authority", NOW)


def new_certificate() -> Issued:
    return issue(AUTHORITY, Subject(name="node", hosts=("127.0.0.1",)), NOW)


class World:
    def __init__(self, folder: Path, protocol: str = "SSL", **others: str) -> None:
        self.file = folder / "node.pem"
        self.file.write_bytes(new_certificate().key_and_chain)
        self.trust = folder / "authority.pem"
        self.trust.write_bytes(AUTHORITY.certificate)
        self.settings = {
            "listeners": f"{protocol}://127.0.0.1:9093",
            "ssl.keystore.location": str(self.file),
            **{name.replace("_", "."): value for name, value in others.items()},
        }
        self.tls = ListenerTls(parse_listeners(self.settings).all[0])

    def context_is_new(self, before: ssl.SSLContext) -> bool:
        return self.tls.context() is not before


def test_files_are_read_again_when_they_have_settled_and_only_what_is_new_is_used(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.tls.context()
    assert world.tls.look(None) is None
    world.file.write_bytes(new_certificate().key_and_chain)
    assert world.tls.look(None) is None  # It may still be being written.
    news = world.tls.look(None)
    assert news is not None
    assert str(world.file) in news
    assert world.context_is_new(first)
    second = world.tls.context()
    world.file.write_bytes(world.file.read_bytes())
    assert [world.tls.look(None), world.tls.look(None)] == [None, None]
    assert not world.context_is_new(second)


def test_a_file_that_cannot_be_used_is_told_once_and_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.tls.context()
    world.file.write_text("something else")
    world.tls.look(None)
    with pytest.raises(QuorateError, match=r"ssl\.keystore\.location"):
        world.tls.look(None)
    assert world.tls.look(None) is None
    assert not world.context_is_new(first)
    world.file.write_bytes(new_certificate().key_and_chain)
    world.tls.look(None)
    assert world.tls.look(None) is not None
    assert world.context_is_new(first)


def test_other_settings_are_used_at_once_and_equal_ones_change_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.tls.context()
    assert world.tls.look(dict(world.settings)) is None
    asking = world.settings | {
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.truststore.location": str(world.trust),
    }
    assert world.tls.look(asking) is not None
    assert world.context_is_new(first)
    assert world.tls.context().verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(QuorateError, match=r"ssl\.client\.auth"):
        world.tls.look(world.settings | {"ssl.client.auth": "maybe"})
    assert world.tls.context().verify_mode is ssl.CERT_REQUIRED


def test_settings_can_be_tried_without_being_used(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.tls.context()
    world.tls.check(world.settings)
    with pytest.raises(QuorateError, match=r"nowhere\.pem cannot be read"):
        world.tls.check(world.settings | {"ssl.keystore.location": str(tmp_path / "nowhere.pem")})
    assert not world.context_is_new(first)


def test_with_sasl_a_certificate_is_asked_for_only_where_the_listener_itself_says_so(tmp_path: Path) -> None:
    trust = tmp_path / "authority.pem"
    world = World(tmp_path, "SASL_SSL", ssl_client_auth="required", ssl_truststore_location=str(trust))
    listener = world.tls.listener
    assert world.tls.settings.client_auth is ClientAuth.NONE
    own = ListenerSettings(world.settings | {"listener.name.sasl_ssl.ssl.client.auth": "required"}, listener.name)
    assert listener_tls_settings(listener, own).client_auth is ClientAuth.REQUIRED
