"""The smallest picture there is, one white pixel, as PNG and as GIF."""

from __future__ import annotations

import struct
import zlib


def png() -> bytes:
    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)  # one pixel, eight bits of grey
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0\xff")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(part(*each) for each in parts)


def gif() -> bytes:
    screen = struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\xff\xff\xff\0\0\0"  # a table of two colours
    return b"GIF89a" + screen + b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\0;"
