"""The smallest picture there is: one white pixel, as PNG."""

from __future__ import annotations

import struct
import zlib


def png() -> bytes:
    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)  # one pixel, eight bits of grey
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0\xff")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(part(*each) for each in parts)
