"""What the commands write for a node is what the node reads."""

from quorate.broker.config import parse_node_config
from quorate.broker.first_user import FirstUser
from quorate.cli.local.node_files import NodeFile
from quorate.kernel.address import Address
from quorate.kernel.ids import NodeId


def test_written_file_is_read_back_as_it_was_meant() -> None:
    file = NodeFile(
        node_id=NodeId(4001),
        data_dir='/data with "quotes"',
        listen="127.0.0.1:9092",
        peer_listen="127.0.0.1:19092",
        cluster_id="c",
        cluster_secret_file='/a "secret"',
        voters={NodeId(7): "127.0.0.1:19093"},
        first_user=FirstUser(name='a "b", ü 日本', password_file="/a\\b\x7f"),
        rack="a",
        configs={"min.insync.replicas": "2"},
    )

    config = parse_node_config(file.text())

    assert config.node_id == 4001
    assert config.data_dir == '/data with "quotes"'
    assert config.cluster_secret_file == '/a "secret"'
    assert config.rack == "a"
    assert config.voters == {7: Address("127.0.0.1", 19093)}
    assert config.first_user == file.first_user
    assert config.configs == {"min.insync.replicas": "2"}


def test_a_node_with_certificates_alone_is_not_told_to_believe_everybody() -> None:
    file = NodeFile(
        node_id=NodeId(4001),
        data_dir="/data",
        listen="127.0.0.1:9092",
        peer_listen="127.0.0.1:19092",
        cluster_id="c",
        cluster_secret_file=None,
        peer_certificate_file='/a "node".pem',
        peer_ca_file="/ca.pem",
        voters={},
    )

    config = parse_node_config(file.text())

    assert (config.peer_certificate_file, config.peer_ca_file) == ('/a "node".pem', "/ca.pem")
    assert not config.peers_unauthenticated
