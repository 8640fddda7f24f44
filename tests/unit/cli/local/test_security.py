"""What ``quorate up --secure`` puts into its folder, keeps there, and refuses before it has changed anything."""

from pathlib import Path

import pytest

from quorate.broker.first_user import FirstUser
from quorate.cli.local.layout import ClusterLayout, Wishes, lay_out
from quorate.cli.local.security import ClusterSecurity
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.jaas import parse_jaas
from quorate.security.listeners import SecurityProtocol
from quorate.security.properties import parse_properties
from tests.unit.cli.local.port_rows import first_of_free_ports


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


def wishes(nodes: int = 3, **others: object) -> Wishes:
    return Wishes(nodes=nodes, port=first_of_free_ports(), secure=True, **others)  # type: ignore[arg-type]


def set_up(folder: Path, wanted: Wishes) -> tuple[ClusterLayout, ClusterSecurity, list[str]]:
    layout = lay_out(folder, wanted)
    told = list(layout.write())
    assert layout.security is not None
    return layout, layout.security, told


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def login(folder: Path) -> tuple[str, str]:
    """As client.properties has it."""
    options = parse_jaas(parse_properties((folder / "client.properties").read_text())["sasl.jaas.config"]).options
    return options["username"], options["password"]


def password_file(folder: Path, content: bytes = b"of my own\n") -> Path:
    path = folder.with_name("password")
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_every_node_has_one_listener_with_tls_and_logins(folder: Path) -> None:
    layout, _, told = set_up(folder, wishes())

    assert told == []
    for config in layout.nodes.values():
        (listener,) = config.listeners.all
        assert listener.protocol is SecurityProtocol.SASL_SSL
        assert config.configs["super.users"] == "User:admin"
        assert config.configs["authorizer.class.name"].endswith("StandardAuthorizer")
        assert config.configs["ssl.keystore.location"] == str(folder / f"node-{config.node_id}.pem")
        assert config.peer_certificate_file == str(folder / f"peer-{config.node_id}.pem")
        assert config.peer_ca_file == str(folder / "ca.pem")
        assert config.first_user == FirstUser(name="admin", password_file=str(folder / "admin.password"))
    assert login(folder) == ("admin", (folder / "admin.password").read_text().strip())


def test_a_later_start_keeps_all_of_it_without_being_asked(folder: Path) -> None:
    set_up(folder, wishes())
    path = folder / "client.properties"
    path.write_text(path.read_text() + "acks=all\n")
    before = contents(folder)

    for wanted in (Wishes(), Wishes(secure=True)):
        _, security, told = set_up(folder, wanted)
        assert contents(folder) == before
        assert told == []
        assert security.description()["client_properties"] == str(path)


def test_a_node_that_is_added_is_like_the_others_and_clients_are_told(folder: Path) -> None:
    set_up(folder, wishes(3, configs={"super.users": "User:admin;User:root"}))
    path = folder / "client.properties"
    path.write_text(path.read_text() + "acks=all\n")
    before = contents(folder)

    layout, _, _ = set_up(folder, Wishes(nodes=4))

    fourth = list(layout.nodes.values())[-1]
    assert fourth.node_id == NodeId(4)
    assert fourth.listeners.all[0].protocol is SecurityProtocol.SASL_SSL
    assert fourth.configs["ssl.keystore.location"] == str(folder / "node-4.pem")
    assert fourth.peer_certificate_file == str(folder / "peer-4.pem")
    assert fourth.configs["super.users"] == "User:admin;User:root"
    assert fourth.first_user is None  # Its password may be gone by now.
    after = contents(folder)
    assert {path for path in before if before[path] != after[path]} == {path}
    assert parse_properties(path.read_text())["bootstrap.servers"] == layout.bootstrap_servers
    assert path.read_text().endswith("acks=all\n")


def test_nodes_are_added_where_nobody_knows_any_more_who_the_first_user_was(folder: Path) -> None:
    set_up(folder, wishes(1))
    toml, properties = folder / "node-1" / "node.toml", folder / "client.properties"
    toml.write_text(toml.read_text().replace("[first_user]\n", "").replace('name = "admin"\n', ""))
    toml.write_text("".join(line for line in toml.read_text().splitlines(True) if "password_file" not in line))
    properties.write_bytes(properties.read_bytes() + b"# f\xfcr mich\n")
    properties.chmod(0o640)

    layout, security, told = set_up(folder, Wishes(nodes=2))

    assert told == []
    assert security.first_user is None
    assert [config.configs["super.users"] for config in layout.nodes.values()] == ["User:admin"] * 2
    assert properties.read_bytes().endswith(b"# f\xfcr mich\n")
    assert properties.stat().st_mode & 0o777 == 0o640
    assert parse_properties(properties.read_text(errors="replace"))["bootstrap.servers"] == layout.bootstrap_servers


def test_a_name_and_a_password_of_ones_own(folder: Path) -> None:
    own = password_file(folder, ' ü"\\,=${x} \n'.encode())
    layout, security, _ = set_up(folder, wishes(1, first_user=FirstUser(name="a b,c=d", password_file=str(own))))

    (config,) = layout.nodes.values()
    assert config.configs["super.users"] == "User:a b,c=d"
    assert login(folder) == ("a b,c=d", ' ü"\\,=${x} ')
    own.unlink()  # The folder has its own.
    for again in (Wishes(), wishes_of_the_same(layout, own)):
        assert set_up(folder, again)[1].first_user == security.first_user
    assert "x}" not in "\n".join(security.instructions()) + repr(layout)


def wishes_of_the_same(layout: ClusterLayout, password: Path) -> Wishes:
    """As a script has them that runs the same command again."""
    (config,) = layout.nodes.values()
    assert config.first_user is not None
    user = FirstUser(name=config.first_user.name, password_file=str(password))
    return Wishes(nodes=1, port=config.listen.port, secure=True, first_user=user)


def test_client_properties_that_were_removed_are_made_again_while_the_password_is_known(folder: Path) -> None:
    set_up(folder, wishes(1))
    path = folder / "client.properties"
    before = path.read_text()
    path.unlink()
    set_up(folder, Wishes())
    assert path.read_text() == before

    path.unlink()
    (folder / "admin.password").unlink()
    _, _, told = set_up(folder, Wishes())

    assert told == [f"{path} is missing, and without admin.password cannot be made anew"]
    assert not path.exists()
    assert not (folder / "admin.password").exists()


def test_a_cluster_that_is_not_secured_is_refused_and_not_changed(folder: Path) -> None:
    lay_out(folder, Wishes(nodes=1, port=first_of_free_ports())).write()
    before = contents(folder)

    with pytest.raises(QuorateError, match=r"that --secure did not set up.*start it without --secure.*another folder"):
        lay_out(folder, Wishes(secure=True))

    assert contents(folder) == before
    assert lay_out(folder, Wishes()).security is None


def test_listeners_that_were_set_up_by_hand_are_kept_and_not_copied(folder: Path) -> None:
    lay_out(folder, Wishes(nodes=1, port=first_of_free_ports())).write()
    path = folder / "node-1" / "node.toml"
    lines = path.read_text().splitlines(keepends=True)
    address = next(line for line in lines if line.startswith("listen = ")).split('"')[1]
    text = "".join(line for line in lines if not line.startswith("listen = "))
    path.write_text(text + f'"listeners" = "PLAINTEXT://{address}"\n')

    assert lay_out(folder, Wishes()).security is None
    with pytest.raises(QuorateError, match=r"listeners that were set up by hand.*node.toml like theirs into .*node-2"):
        lay_out(folder, Wishes(nodes=2))


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({"configs": {"listeners": "PLAINTEXT://:1"}}, "--secure sets listeners for each node"),
        ({"configs": {"ssl.keystore.location": "/x"}}, "--secure sets ssl.keystore.location for each node"),
        ({"configs": {"num.partitons": "1"}}, "--config: .*num.partitons"),
        ({"first_user": FirstUser(name="a;b", password_file="/p")}, "/p cannot be read: No such file"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    folder: Path, others: dict[str, object], sentence: str
) -> None:
    with pytest.raises(QuorateError, match=sentence):
        lay_out(folder, wishes(1, **others))
    assert not folder.exists()


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (b"", 0o600, "the password is empty"),
        (b"\xff\xfe\0", 0o600, "not UTF-8"),
        (b"hidden" * 2_000_000, 0o600, "longer than 1024 bytes"),
        (b"hidden", 0o644, "chmod 600"),
    ],
    ids=["empty", "binary", "12 MB", "open to others"],
)
def test_a_password_file_that_cannot_be_used_is_refused_before_anything_is_written(
    folder: Path, secure: bool, content: bytes, mode: int, sentence: str
) -> None:
    path = password_file(folder, content)
    path.chmod(mode)
    user = FirstUser(name="admin", password_file=str(path))

    with pytest.raises(QuorateError, match=sentence) as raised:
        lay_out(folder, Wishes(nodes=1, port=first_of_free_ports(), secure=secure, first_user=user))

    assert "hidden" not in str(raised.value)
    assert not folder.exists()


def test_a_super_users_name_has_no_semicolon(folder: Path) -> None:
    user = FirstUser(name="a;User:b", password_file=str(password_file(folder)))
    with pytest.raises(QuorateError, match="no semicolon in it, as 'a;User:b' has"):
        lay_out(folder, wishes(1, first_user=user))
    assert not folder.exists()


def test_a_first_user_without_secure_is_in_every_file(folder: Path) -> None:
    user = FirstUser(name="admin", password_file=str(password_file(folder)))
    wanted = Wishes(nodes=3, port=first_of_free_ports(), first_user=user)
    layout = lay_out(folder, wanted)
    layout.write()

    assert layout.security is None
    assert [config.first_user for config in lay_out(folder, Wishes()).nodes.values()] == [user] * 3
    with pytest.raises(QuorateError, match="set up without this --first-user"):
        lay_out(folder, Wishes(first_user=FirstUser(name="eve", password_file=user.password_file)))


def test_a_start_that_was_cut_short_is_completed(folder: Path) -> None:
    """The files of a node come last: without them there is no cluster yet."""
    set_up(folder, wishes(1))
    password, authority = (folder / "admin.password").read_bytes(), (folder / "ca.pem").read_bytes()
    for path in (folder / "node-1" / "node.toml", folder / "client.properties"):
        path.unlink()

    set_up(folder, wishes(1))

    assert ((folder / "admin.password").read_bytes(), (folder / "ca.pem").read_bytes()) == (password, authority)
    assert login(folder) == ("admin", password.decode().strip())
