"""What the commands write for a node is what the node reads."""

from quorate.broker.config import parse_node_config
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
        voters={NodeId(7): "127.0.0.1:19093"},
        rack="a",
        configs={"min.insync.replicas": "2"},
    )

    config = parse_node_config(file.text())

    assert config.node_id == 4001
    assert config.data_dir == '/data with "quotes"'
    assert config.rack == "a"
    assert config.voters == {7: Address("127.0.0.1", 19093)}
    assert config.configs == {"min.insync.replicas": "2"}
