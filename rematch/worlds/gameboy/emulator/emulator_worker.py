"""The other side of bank.Worker: plays some rows of a bank in a process of its own.

The cartridge stands in the shared memory, behind the machines' part of it. Commands come through standard
input, each a head (bank.HEAD) and its data.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
from typing import BinaryIO

from .emulator_pool import FAILED, FINE, HEAD, LOAD, SAVE, SCREEN, STEP, Local, Plan


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # for whoever started us, though all are told: a terminal
        signal.signal(number, signal.SIG_IGN)  # and a service manager do; the end of our input ends us
    fd, count, first, end, size = map(int, sys.argv[1:6])
    regions = tuple((int(a), int(b)) for a, b in (word.split("-") for word in sys.argv[6:]))
    source, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # answers go out alone
    shared = mmap.mmap(fd, 0)
    os.close(fd)
    plan = Plan(shared[-size:], regions, count)
    bank = Local(plan, shared, range(first, end))
    answer(out, FINE, 0)
    while True:
        head = source.read(HEAD.size)
        if len(head) < HEAD.size:
            return  # whoever started us is gone
        command, row, length = HEAD.unpack(head)
        obey(bank, out, (command, row), source.read(length))


def obey(bank: Local, out: BinaryIO, head: tuple[bytes, int], data: bytes) -> None:
    command, row = head
    if command == STEP:
        (end,) = struct.unpack("<I", data)
        for fault in bank.step(row, bank.actions[row:end].tolist()):
            answer(out, FAILED, fault.row, fault.trace.encode())
        answer(out, FINE, row)
    elif command == SAVE:
        answer(out, FINE, row, bank.save(row))
    elif command == SCREEN:
        answer(out, FINE, row, bank.screen(row).tobytes())
    elif command == LOAD:
        wrong = bank.load(row, data)
        answer(out, FAILED if wrong else FINE, row, wrong.trace.encode() if wrong else b"")


def answer(out: BinaryIO, what: bytes, row: int, data: bytes = b"") -> None:
    out.write(HEAD.pack(what, row, len(data)) + data)
    out.flush()


if __name__ == "__main__":
    main()
