"""What a cluster that secures itself keeps in its folder: made once, kept, renewed in time, and private."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from quorate.broker.peer_credentials import check_certificate_files
from quorate.broker.secured_folder import ClientAccess, SecuredFolder, listener_configs
from quorate.client.client_properties import parse_client_properties, relevant_properties
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.certificates import Subject, examine_certificate, issue, make_authority
from quorate.security.jaas import parse_jaas
from quorate.security.listeners import SecurityProtocol
from quorate.security.properties import parse_properties, resolve_references

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NODES = [NodeId(7), NodeId(100)]
HOSTS = ("127.0.0.1",)


class Folder(SecuredFolder):
    """At a time that the test sets."""

    def __init__(self, path: Path) -> None:
        self.time = NOW
        super().__init__(path, lambda: self.time)
        self.path = path

    def make(self, *node_ids: NodeId) -> list[str]:
        self.check_certificates(node_ids or NODES)
        return list(self.make_certificates(node_ids or NODES, HOSTS))

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.path.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def certificates(folder: Folder) -> list[Path]:
    return [path for node in NODES for path in (folder.certificate_of(node), folder.peer_certificate_of(node))]


def test_certificates_are_made_once_and_are_private(folder: Folder) -> None:
    assert folder.make() == []
    made = folder.contents()

    assert set(made) == {"ca.pem", "ca.key", *(f"{kind}-{node}.pem" for kind in ("node", "peer") for node in NODES)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {0o600}
    assert examine_certificate(made["node-7.pem"], made["ca.pem"]).is_of_authority
    for node in NODES:
        check_certificate_files(str(folder.peer_certificate_of(node)), str(folder.ca_file), node)
    assert folder.make() == []
    assert folder.contents() == made


def test_a_node_that_comes_later_has_the_same_authority(folder: Folder) -> None:
    folder.make()
    before = folder.contents()

    folder.make(*NODES, NodeId(4001))

    after = folder.contents()
    for name in ("node-4001.pem", "peer-4001.pem"):
        assert examine_certificate(after.pop(name), before["ca.pem"]).is_of_authority
    assert after == before


@pytest.mark.parametrize("days", [336, 364, 400, 3000])
def test_a_certificate_that_ends_soon_or_has_ended_is_made_anew_and_told(folder: Folder, days: int) -> None:
    folder.make()
    before = folder.contents()
    folder.time = NOW + timedelta(days=days)

    told = folder.make()

    assert told == [
        f"there is a new certificate in {path}, as the old one ends soon or has ended" for path in certificates(folder)
    ]
    after = folder.contents()
    assert (after["ca.pem"], after["ca.key"]) == (before["ca.pem"], before["ca.key"])
    facts = examine_certificate(after["node-7.pem"], after["ca.pem"])
    assert facts.is_of_authority
    assert facts.expires - folder.time > timedelta(days=300)
    assert folder.make() == []


def test_a_certificate_is_left_alone_while_it_is_good_for_a_month(folder: Folder) -> None:
    folder.make()
    before = folder.contents()
    folder.time = NOW + timedelta(days=334)

    assert folder.make() == []
    assert folder.contents() == before


def test_an_authority_that_ends_is_told_and_kept(folder: Folder) -> None:
    folder.make()
    authority = folder.ca_file.read_bytes()
    folder.time = NOW + timedelta(days=3640)

    told = folder.make()

    assert f"the authority in {folder.ca_file} ends on 2036-02-27: docs/security.md says how to replace it" in told
    assert folder.ca_file.read_bytes() == authority
    folder.time += timedelta(days=20)
    assert f"the authority in {folder.ca_file} has ended on 2036-02-27: docs" in folder.make()[0]


def test_a_certificate_of_another_authority_is_left_to_those_who_put_it_there(folder: Folder) -> None:
    folder.make()
    real = issue(make_authority("a real one", NOW), Subject(name="broker", hosts=HOSTS), NOW, days=90)
    folder.certificate_of(NODES[0]).write_bytes(real.key_and_chain)
    folder.time = NOW + timedelta(days=70)

    (told,) = folder.make()

    assert told == (
        f"the certificate in {folder.certificate_of(NODES[0])} ends on 2026-05-30: put another one in its place"
    )
    assert folder.certificate_of(NODES[0]).read_bytes() == real.key_and_chain


def test_without_the_authoritys_key_what_is_there_works_on(folder: Folder) -> None:
    folder.make()
    folder.ca_key_file.unlink()

    assert folder.make() == []
    folder.time = NOW + timedelta(days=350)
    assert folder.make() == [
        f"the certificate in {path} ends on 2027-03-01: put {folder.ca_key_file} back" for path in certificates(folder)
    ]
    with pytest.raises(QuorateError, match=r"ca.key is missing, which has to sign node-4001.pem: put it back"):
        folder.check_certificates([NodeId(4001)])


def test_an_authority_that_is_lost_is_not_made_anew_behind_the_back_of_its_clients(folder: Folder) -> None:
    folder.make()
    folder.ca_file.unlink()

    with pytest.raises(QuorateError, match=r"ca.pem is missing, which has signed node-7.pem: put it back"):
        folder.check_certificates(NODES)


def test_an_authority_is_replaced_where_its_files_and_certificates_are_removed(folder: Folder) -> None:
    folder.make()
    before = folder.contents()
    for path in folder.path.iterdir():
        path.unlink()

    folder.make()

    assert not set(before.values()) & set(folder.contents().values())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ca.pem", "ca.pem and ca.key: the authority's certificate or key is no PEM"),
        ("ca.key", "ca.pem and ca.key: the authority's certificate or key is no PEM"),
        ("node-7.pem", "node-7.pem: it is no certificate in PEM; remove it to have it made anew"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_changed(folder: Folder, name: str, sentence: str) -> None:
    folder.make()
    (folder.path / name).write_bytes(b"\xff\0 not PEM")
    before = folder.contents()

    with pytest.raises(QuorateError, match=sentence) as raised:
        folder.check_certificates(NODES)

    assert "\n" not in str(raised.value)
    assert folder.contents() == before


def test_a_folder_in_the_place_of_a_file_is_a_sentence(folder: Folder) -> None:
    folder.ca_file.mkdir()
    with pytest.raises(QuorateError, match=r"ca.pem cannot be read: Is a directory"):
        folder.check_certificates(NODES)


def test_a_password_is_made_once_and_can_be_given(folder: Folder) -> None:
    assert folder.find_password() is None
    made = folder.settle_password()
    assert len(made) == 32
    assert folder.settle_password() == made == folder.find_password()
    assert stat.S_IMODE(folder.password_file.stat().st_mode) == 0o600
    assert folder.settle_password("given") == "given" == folder.find_password()


def test_a_password_that_others_can_read_is_refused(folder: Folder) -> None:
    folder.settle_password()
    folder.password_file.chmod(0o644)
    with pytest.raises(QuorateError, match="chmod 600"):
        folder.settle_password()


@pytest.mark.parametrize("name", ["admin", 'a "b", c=\\d', "${HOME} ${file:/etc/passwd}", "ü 日本"])
@pytest.mark.parametrize("password", ["secret", " ${x} \"';\\,=", "$${x}{", "#!:=\\u0041"])
def test_a_name_and_a_password_arrive_as_they_are(folder: Folder, name: str, password: str) -> None:
    access = ClientAccess(
        bootstrap_servers="127.0.0.1:9092,127.0.0.1:9093",
        protocol=SecurityProtocol.SASL_SSL,
        username=name,
        password=password,
        ca_file=folder.path / "a \\ földer" / "ca.pem",
    )
    folder.write_client_properties(access, "made by a test")
    text = folder.client_properties.read_text(encoding="ascii")

    read = resolve_references(relevant_properties(parse_properties(text)), {}, _no_file)
    login = parse_jaas(read["sasl.jaas.config"])
    assert (login.options["username"], login.options["password"]) == (name, password)
    assert parse_client_properties(read).bootstrap_servers == access.bootstrap_servers
    assert read["ssl.truststore.location"] == str(access.ca_file)
    assert password not in repr(access) or password in name


def _no_file(path: str) -> str:
    raise AssertionError(f"nothing refers to {path}")


def test_listeners_ask_for_what_their_protocol_has(folder: Folder) -> None:
    def configs(protocol: SecurityProtocol) -> dict[str, str]:
        return listener_configs(protocol, Address("127.0.0.1", 9092), folder, NODES[0], "admin")

    full = configs(SecurityProtocol.SASL_SSL)
    assert full["listeners"] == "SASL_SSL://127.0.0.1:9092"
    assert full["ssl.keystore.location"] == str(folder.path / "node-7.pem")
    assert full["super.users"] == "User:admin"
    assert "ssl.client.auth" not in full
    assert "ssl.keystore.location" not in configs(SecurityProtocol.SASL_PLAINTEXT)
    certified = configs(SecurityProtocol.SSL)
    assert "authorizer.class.name" not in certified
    assert certified["ssl.client.auth"] == "requested"
