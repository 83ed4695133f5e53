# Names and numpy types of the structs `Rules` and `Game` of a compiled world; its native.pyx includes this file after
# it has defined `rules_layout` and `game_layout` (struct_layout.h).

import numpy as np

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

cdef extern from *:
    ctypedef struct StructMember:
        const char *type
        const char *name
        size_t offset
        size_t length
    ctypedef struct StructLayout:
        const StructMember *members
        size_t count
        size_t bytes
    const StructLayout rules_layout
    const StructLayout game_layout
    const char *REMATCH_BUILD
    const uint32_t GAME_MARK

_NUMPY_TYPES = {
    "float": "f4", "int32_t": "i4", "rm_flag": "i4", "rm_choice": "i4", "uint8_t": "u1", "uint16_t": "u2",
    "rm_count": "u2", "uint32_t": "u4", "uint64_t": "u8",
}


cdef dict _member_types(const StructLayout *layout):
    """Member name -> C type."""
    return {layout.members[n].name.decode(): layout.members[n].type.decode() for n in range(layout.count)}


cdef object _struct_dtype(const StructLayout *layout, float_arrays=()):
    """The numpy type of a struct; `float_arrays`: (name, shape) of float arrays that follow it in memory."""
    names, formats, offsets = [], [], []
    size = layout.bytes
    for n in range(layout.count):
        number = _NUMPY_TYPES[layout.members[n].type.decode()]
        length = layout.members[n].length
        names.append(layout.members[n].name.decode())
        formats.append(number if length == 1 else (number, (length,)))
        offsets.append(layout.members[n].offset)
    for name, shape in float_arrays:
        names.append(name)
        formats.append(("f4", shape))
        offsets.append(size)
        size += 4 * int(np.prod(shape))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


BUILD = REMATCH_BUILD.decode()
MARK = GAME_MARK
RULES = _member_types(&rules_layout)
RULES_TYPE = _struct_dtype(&rules_layout)
GAME_TYPE = _struct_dtype(&game_layout)


cdef int _write_rules(void *rules, values) except -1:
    """Fill the struct `Rules` from a mapping name -> number."""
    row = np.zeros((), RULES_TYPE)
    for name in RULES:
        row[name] = values[name]
    cdef const uint8_t[::1] row_bytes = np.frombuffer(row.tobytes(), np.uint8)
    memcpy(rules, &row_bytes[0], rules_layout.bytes)
    return 0
