"""Savestates, memory and screens of PyBoy in C: pyboy_emulator.py does the same slowly without this module.

PyBoy itself makes one Python call per byte of a state, 150 000 per state. It passes each number to an
`IntIOInterface`; the two classes here keep the bytes in memory. The bytes equal those of `PyBoy.save_state`.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t

from pyboy.pyboy cimport PyBoy
from pyboy.utils cimport IntIOInterface

cdef extern from *:
    const char *REMATCH_BUILD
    const char *REMATCH_PYBOY

BUILD = REMATCH_BUILD.decode()
PYBOY = REMATCH_PYBOY.decode()


cdef class Sink(IntIOInterface):
    """Receives the bytes of a state."""

    cdef bytearray data
    cdef uint8_t *start
    cdef size_t at, room

    def __init__(self):
        self.room = 1 << 18
        self.data = bytearray(self.room)
        self.start = self.data
        self.at = 0

    cpdef int64_t write(self, uint8_t byte) except -1:
        if self.at == self.room:
            self.data += bytes(self.room)
            self.room *= 2
            self.start = self.data
        self.start[self.at] = byte
        self.at += 1
        return 1

    cpdef int flush(self) except -1:
        return 0


cdef class Source(IntIOInterface):
    """Returns the bytes of a state one by one."""

    cdef bytes data
    cdef const uint8_t *start
    cdef size_t at, end

    def __init__(self, bytes data not None):
        self.data = data
        self.start = data
        self.at = 0
        self.end = len(data)

    cpdef uint8_t read(self) except? -1:
        if self.at == self.end:
            raise EOFError("the state ends too early")
        self.at += 1
        return self.start[self.at - 1]

    cpdef int flush(self) except -1:
        return 0


def save(PyBoy boy not None):
    cdef Sink sink = Sink()
    boy.mb.save_state(sink)
    return bytes(memoryview(sink.data)[: sink.at])


def load(PyBoy boy not None, bytes state not None):
    boy.mb.load_state(Source(state))


def read(PyBoy boy not None, tuple regions not None, uint8_t[::1] out not None):
    """Write these regions of memory, (first address, end), one after the other."""
    cdef Py_ssize_t at = 0
    cdef int address, first, end
    for first, end in regions:
        if not 0 <= first <= end <= 0x10000 or at + end - first > out.shape[0]:
            raise ValueError(f"region {first} to {end} does not fit")
        for address in range(first, end):
            out[at] = boy.mb.getitem(<uint16_t> address)
            at += 1
    if at != out.shape[0]:
        raise ValueError(f"{at} bytes for {out.shape[0]}")


def shrink(const uint8_t[:, :] pixels not None, uint8_t[:, ::1] out not None):
    """Every second pixel of every second row: 0 black to 3 white."""
    cdef Py_ssize_t y, x
    if pixels.shape[0] < 2 * out.shape[0] or pixels.shape[1] < 2 * out.shape[1]:
        raise ValueError("the screen is too small")
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = pixels[2 * y, 2 * x] >> 6
