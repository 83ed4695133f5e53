"""Writes and reads PyBoy states in C. PyBoy itself makes one Python call per byte, 150 000 per state.

PyBoy passes each number of a state to an `IntIOInterface`; the two classes here keep the bytes in memory. The
bytes equal those of `PyBoy.save_state`, which pyboy_emulator.py uses if this module was not compiled for the
installed PyBoy.
"""

from libc.stdint cimport int64_t, uint8_t

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
