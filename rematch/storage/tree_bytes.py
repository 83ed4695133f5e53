"""A state tree as one piece of bytes: for messages between processes and machines.

The format is that of a checkpoint (storage/checkpoint.py) in one safetensors file: every array is its type,
its shape and its raw bytes; the array TREE holds the rest as JSON. Reading runs no code of the sender.
"""

from __future__ import annotations

import json

import numpy as np
import safetensors.numpy

from rematch.core.arrays import Tree
from rematch.core.errors import Damaged
from rematch.storage.array_chunks import Arrays, read_arrays
from rematch.storage.checkpoint import pack, unpack

TREE = "tree"  # name of the array with the JSON text; the names of all others start with a slash


def encode(tree: Tree) -> bytes:
    """Nested dicts of arrays, numbers, texts and lists as bytes."""
    arrays: Arrays = {}
    text = json.dumps(pack(tree, "", arrays), separators=(",", ":")).encode()
    arrays[TREE] = np.frombuffer(text, np.uint8)
    data: bytes = safetensors.numpy.save(arrays)
    return data


def decode(data: bytes, name: str = "message") -> Tree:
    """The inverse of `encode`; Damaged where the bytes are no tree."""
    arrays = read_arrays(data, name)
    try:
        tree = unpack(json.loads(arrays.pop(TREE).tobytes()), arrays, {})
        if not isinstance(tree, dict) or arrays:
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Damaged(f"{name} is not a state tree") from None
    return tree
