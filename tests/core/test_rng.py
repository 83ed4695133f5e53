"""Random numbers: Philox's published numbers, the same numbers in C, distinct streams."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematch
from rematch.core import rng

NATIVE = Path(rematch.__file__).parent / "worlds" / "native"
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
ONES = (0xFFFFFFFF,) * 4

# Random123's known answers for philox4x32-10: counter, key (low word first), output.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (ONES, ONES[:2], (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_gives_the_published_numbers(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    made = rng.philox(key[1] << 32 | key[0], np.array(counter, np.uint64))
    assert tuple(made.tolist()) == answer
    rows = rng.philox(key[1] << 32 | key[0], np.array([counter, (1, 2, 3, 4), counter], np.uint64))
    assert tuple(rows[0].tolist()) == tuple(rows[2].tolist()) == answer != tuple(rows[1].tolist())


def test_c_philox_gives_the_same_words(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = r"""
        #include <stdio.h>
        #include <inttypes.h>
        #include "random.h"
        int main(void) {
            uint64_t key; uint32_t c[4];
            const char *four = " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32;
            while (scanf("%" SCNu64, &key) == 1 && scanf(four, c, c + 1, c + 2, c + 3) == 4) {
                rm_quad q = rm_philox(key, c[0], c[1], c[2], c[3]);
                printf("%u %u %u %u %a\n", q.w[0], q.w[1], q.w[2], q.w[3], rm_unit(q.w[0]));
            }
            return 0;
        }"""
    (tmp_path / "draw.c").write_text(program)
    build = [
        compiler,
        "-std=c99",
        "-Wall",
        "-Werror",
        "-Wno-unused",
        "-I",
        str(NATIVE),
        "draw.c",
        "-o",
        "draw",
    ]
    subprocess.run(build, cwd=tmp_path, check=True)
    draw = np.random.default_rng(0)
    inputs = [
        (key, tuple(counter))
        for key, counter in zip(
            draw.integers(0, 2**64, 200, np.uint64).tolist(), draw.integers(0, 2**32, (200, 4)).tolist()
        )
    ]
    inputs += [(key[1] << 32 | key[0], counter) for counter, key, _ in KNOWN]
    text = "".join(f"{key} {' '.join(map(str, counter))}\n" for key, counter in inputs)
    command = [tmp_path / "draw"]
    output = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    for (key, counter), line in zip(inputs, output.splitlines(), strict=True):
        *output, unit = line.split()
        assert rng.philox(key, np.array(counter, np.uint64)).tolist() == [int(word) for word in output]
        assert float.fromhex(unit) == (int(output[0]) >> 8) / 2**24


def test_stream_numbers_are_distinct_and_equal_those_in_c() -> None:
    streams = {name: value for name, value in vars(rng).items() if name.isupper() and isinstance(value, int)}
    assert len(set(streams.values())) == len(streams)
    assert max(streams.values()) < 256  # C puts the number of a draw above the stream's eight bits
    for name, value in re.findall(r"RM_STREAM_(\w+) = (\d+)", (NATIVE / "random.h").read_text()):
        assert streams[name] == int(value)


@given(U64, st.integers(0, 255), st.integers(1, 40), st.integers(0, 2**63))
@settings(max_examples=50)
def test_words_depend_on_seed_stream_index_and_step(seed: int, stream: int, count: int, step: int) -> None:
    output = rng.words(seed, stream, count, step)
    assert output.tolist() == [rng.key(seed, stream, i, step) for i in range(count)]
    assert rng.words(seed, stream, 1, step)[0] == output[0]  # independent of the count
    units = rng.units(seed, stream, count, step)
    assert ((units >= 0) & (units < 1)).all()
    assert units.tolist() == [(word >> 11) * 2.0**-53 for word in output.tolist()]


@given(U64, st.integers(0, 255), U32, st.integers(0, 2**40))
@settings(max_examples=100)
def test_key_changes_with_seed_stream_index_and_step(seed: int, stream: int, index: int, step: int) -> None:
    key = rng.key(seed, stream, index, step)
    others = [
        rng.key(seed ^ 1, stream, index, step),
        rng.key(seed ^ 1 << 63, stream, index, step),
        rng.key(seed, stream ^ 1, index, step),
        rng.key(seed, stream, index ^ 1, step),
        rng.key(seed, stream, index, step ^ 1),
        rng.key(seed, stream, index, step ^ 1 << 35),
    ]
    assert len({key, *others}) == 7
    assert 0 <= key < 2**64


def test_units_are_uniform() -> None:
    counts = np.bincount((rng.units(7, rng.GAME, 64_000) * 64).astype(int), minlength=64)
    # chi-square with 63 degrees of freedom: beyond 115 once in 10 000
    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 115


def test_generators_of_one_key_are_equal_and_of_two_differ() -> None:
    first, again = rng.generator(3, rng.SHUFFLE, 1, 2), rng.generator(3, rng.SHUFFLE, 1, 2)
    other = rng.generator(3, rng.SHUFFLE, 1, 3)
    output = first.random(8)
    assert (output == again.random(8)).all() and (output != other.random(8)).all()


@given(U64, st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_permutation_is_that_of_numpy(seed: int, count: int) -> None:
    values = np.arange(count, dtype=np.int64) * 3 - 7
    given = rng.permutation(values, seed, rng.SHUFFLE, 2, 5)
    assert given.tolist() == rng.generator(seed, rng.SHUFFLE, 2, 5).permutation(values).tolist()
    assert values.tolist() == list(range(-7, 3 * count - 7, 3))  # the argument did not change


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 2048, 2049, 65_536, 65_537, 200_001])
def test_permutation_of_many_numbers_is_that_of_numpy(count: int) -> None:
    values = np.arange(count)
    given = rng.permutation(values, 11, rng.SHUFFLE)
    assert np.array_equal(given, rng.generator(11, rng.SHUFFLE).permutation(values))
