"""What a new node is given to show to the others: found wrong before anything is written."""

from pathlib import Path

import pytest

from quorate.broker.peer_credentials import make_secret_file
from quorate.cli.cluster.new_node import PeerFiles, check_peer_files
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from tests.peers.node_certificates import NodeAuthority, NodeFiles

NEW = NodeId(8)
OURS = NodeAuthority()


@pytest.fixture
def files(tmp_path: Path) -> NodeFiles:
    return NodeFiles(tmp_path, OURS, [7, NEW])


def test_certificates_need_no_secret_and_may_stand_beside_it(files: NodeFiles, tmp_path: Path) -> None:
    own, authorities = files.certificate_file(NEW), files.authority_file
    expected = PeerFiles(certificate=str(own), authorities=str(authorities))
    assert check_peer_files(NEW, None, own, authorities, is_without=False) == expected
    secret = tmp_path / "secret"
    make_secret_file(secret)
    assert check_peer_files(NEW, secret, own, authorities, is_without=False).secret == str(secret)
    assert check_peer_files(NEW, secret, None, None, is_without=False) == PeerFiles(secret=str(secret))
    assert check_peer_files(NEW, None, None, None, is_without=True) == PeerFiles()


def test_mistakes_are_one_sentence(files: NodeFiles, tmp_path: Path) -> None:
    own, authorities = files.certificate_file(NEW), files.authority_file
    with pytest.raises(QuorateError, match="--peer-certificate-file and --peer-ca-file go together"):
        check_peer_files(NEW, None, own, None, is_without=False)
    with pytest.raises(QuorateError, match="--peer-certificate-file and --peer-ca-file go together"):
        check_peer_files(NEW, None, None, authorities, is_without=False)
    with pytest.raises(QuorateError, match="or --peers-unauthenticated, not both"):
        check_peer_files(NEW, None, own, authorities, is_without=True)
    with pytest.raises(QuorateError, match=r"--cluster-secret-file; .*--peer-certificate-file and --peer-ca-file"):
        check_peer_files(NEW, None, None, None, is_without=False)
    with pytest.raises(QuorateError, match="the certificate is of node 7, this is node 8"):
        check_peer_files(NEW, None, files.certificate_file(7), authorities, is_without=False)
    with pytest.raises(QuorateError, match=r"peer_ca_file: .* cannot be read: No such file or directory"):
        check_peer_files(NEW, None, own, tmp_path / "nosuch", is_without=False)
