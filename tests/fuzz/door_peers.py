"""Nodes that are none, at the peer port: who does not know the secret, and who repeats what it has heard."""

from random import Random
from struct import pack
from typing import Final

from quorate.kernel.ids import NodeId
from quorate.security.peer_handshake import NONCE_BYTES, ClusterSecrets, DialingPeer, PeerRefused, ProvenPeer
from quorate.transport.peers.frames import FrameKind
from tests.fuzz.door_line import Line
from tests.fuzz.mutations import mutate

_MAGIC: Final = b"QPH\0"
_PROOF_BYTES: Final = 32
_WRONG_SECRET: Final = ClusterSecrets(["w" * 40, "v" * 40])
#: What a stranger may hear: that it has to prove something, a random number, and a refusal.
_ANSWER_BYTES: Final = len(_MAGIC) + 1 + NONCE_BYTES


async def visit_as_node(line: Line, random: Random, node_id: int, secrets: ClusterSecrets) -> str | None:
    """What was said that nobody should hear without a proof; None where nothing was."""
    own = random.choice((0, 666, node_id, -1, 2**31 - 1))
    # Another secret, or the right one, and then something else than what comes of it.
    known = secrets if random.random() < 0.3 else _WRONG_SECRET
    dialing = DialingPeer(known, NodeId(own), NodeId(node_id), random.randbytes(NONCE_BYTES))
    opening = dialing.opening()
    heard = [await _ask(line, _changed(random, opening) if random.random() < 0.4 else opening)]
    if (told := _told(heard)) is not None:
        return told
    proof = _proof(random, dialing, opening, heard[0])
    for _ in range(random.choice((1, 1, 2))):
        heard.append(await _ask(line, proof))
        if (told := _told(heard)) is not None:
            return told
    return None


def _proof(random: Random, dialing: DialingPeer, opening: bytes, answer: bytes) -> bytes:
    try:
        step = dialing.receive(answer[1:])
    except PeerRefused:
        step = b""
    proof = b"" if isinstance(step, ProvenPeer) else step
    match random.randrange(7):
        case 0:
            # With the node's own words, as if they were a proof.
            return proof[:9] + answer[-_PROOF_BYTES:]
        case 1:
            return opening
        case 2:
            count = random.choice((0, 1, 2, 3, 255))
            return proof[:8] + bytes([count]) + random.randbytes(_PROOF_BYTES * min(count, 4))
        case 3:
            # As another node than the one that the proof is of.
            return pack(">i", random.choice((0, 7, 100, 4001))) + proof[4:-1] + bytes([(proof or b"\0")[-1] ^ 1])
        case 4:
            return random.randbytes(random.choice((0, 1, 127, 128, 129, 4_000, 5_000)))
        case _:
            changed = mutate(random, proof, opening)
            return changed if changed != proof else proof[:-1]


def _changed(random: Random, opening: bytes) -> bytes:
    match random.randrange(4):
        case 0:
            return opening[:4] + bytes([random.choice((0, 2, 255))]) + opening[5:]
        case 1:
            return opening + random.randbytes(random.choice((1, 100, 5_000)))
        case _:
            return mutate(random, opening, opening)


async def _ask(line: Line, body: bytes) -> bytes:
    await line.send_frame(bytes([FrameKind.AUTHENTICATE]) + body)
    return await line.receive_frame()


def _told(heard: list[bytes]) -> str | None:
    """The last thing that was heard, where it is neither a refusal nor the first random number."""
    latest = heard[-1]
    if latest[:1] == bytes([FrameKind.REJECT]):
        return None
    is_answer = latest[:1] == bytes([FrameKind.AUTHENTICATE]) and len(latest) == 1 + _ANSWER_BYTES
    return None if is_answer and len(heard) == 1 else f"it said {latest[:80]!r}"
