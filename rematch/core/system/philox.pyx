"""Philox 4x32-10 of worlds/native/random.h over a range of indices, and numpy's shuffle, for core/rng.py."""

import numpy as np

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include "random.h"
    #ifndef REMATCH_BUILD
    #define REMATCH_BUILD ""
    #endif
    """
    const char *REMATCH_BUILD
    ctypedef struct rm_quad:
        uint32_t w[4]
    rm_quad rm_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) nogil

cdef extern from "permutation.h" nogil:
    void shuffle(uint64_t key, int64_t *values, int64_t count)

BUILD = REMATCH_BUILD.decode()


def words(uint64_t key, uint32_t stream, Py_ssize_t count, uint64_t step):
    """[count] the first two words for the counters (0 .. count - 1, step, stream), as 64-bit numbers."""
    cdef uint64_t[::1] out = np.empty(count, np.uint64)
    cdef Py_ssize_t i
    cdef rm_quad quad
    with nogil:
        for i in range(count):
            quad = rm_philox(key, <uint32_t>i, <uint32_t>step, stream, <uint32_t>(step >> 32))
            out[i] = <uint64_t>quad.w[0] << 32 | quad.w[1]
    return np.asarray(out)


def shuffled(uint64_t key, values):
    """A copy of the int64 numbers [n], n < 2^32, in the order of numpy.random.Generator(Philox(key)).permutation."""
    cdef int64_t[::1] out = np.array(values, np.int64)
    with nogil:
        if out.shape[0]:
            shuffle(key, &out[0], out.shape[0])
    return np.asarray(out)
