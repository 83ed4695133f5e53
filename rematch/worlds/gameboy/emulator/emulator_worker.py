"""The child process of emulator_pool.Worker: steps some rows of a pool.

The cartridge is in the shared memory, after the arrays of the emulators. Commands come through standard
input; each is a header (emulator_pool.HEAD) and its data.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
from typing import BinaryIO

from .emulator_pool import FAILED, FINE, HEAD, LOAD, SAVE, SCREEN, STEP, LocalPool, PoolSpec


def main() -> None:
    # A terminal or a service manager signals all processes; the parent handles it, and the end of its
    # standard input ends this process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    fd, count, first, end, size = map(int, sys.argv[1:6])
    regions = tuple((int(a), int(b)) for a, b in (word.split("-") for word in sys.argv[6:]))
    source, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # standard output carries replies only
    shared = mmap.mmap(fd, 0)
    os.close(fd)
    spec = PoolSpec(shared[-size:], regions, count)
    pool = LocalPool(spec, shared, range(first, end))
    reply(out, FINE, 0)
    while True:
        head = source.read(HEAD.size)
        if len(head) < HEAD.size:
            return  # the parent process has ended
        command, row, length = HEAD.unpack(head)
        dispatch(pool, out, (command, row), source.read(length))


def dispatch(pool: LocalPool, out: BinaryIO, head: tuple[bytes, int], data: bytes) -> None:
    command, row = head
    if command == STEP:
        (end,) = struct.unpack("<I", data)
        for fault in pool.step(row, pool.actions[row:end].tolist()):
            reply(out, FAILED, fault.row, fault.trace.encode())
        reply(out, FINE, row)
    elif command == SAVE:
        reply(out, FINE, row, pool.save(row))
    elif command == SCREEN:
        reply(out, FINE, row, pool.screen(row).tobytes())
    elif command == LOAD:
        load_fault = pool.load(row, data)
        trace = load_fault.trace.encode() if load_fault else b""
        reply(out, FAILED if load_fault else FINE, row, trace)


def reply(out: BinaryIO, kind: bytes, row: int, data: bytes = b"") -> None:
    out.write(HEAD.pack(kind, row, len(data)) + data)
    out.flush()


if __name__ == "__main__":
    main()
