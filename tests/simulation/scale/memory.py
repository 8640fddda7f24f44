"""Reads a snapshot of the metadata from standard input, and prints by how much loading it makes a process grow."""

import gc
import resource
import sys

from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.snapshot import decode_image, encode_image


def main() -> None:
    payload = sys.stdin.buffer.read()
    decode_image(encode_image(MetadataImage()))  # Whatever is made at first use.
    gc.collect()
    before = resident_bytes()
    image = decode_image(payload)
    gc.collect()
    print(resident_bytes() - before)
    del image


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
