"""The table of a sweep: every seed has a line, and no name breaks it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rematch.reporting import sweep_text
from rematch.sweeps.plan import read_seeds


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20, unique=True))
def test_ranges_are_read_back(seeds: list[int]) -> None:
    assert list(read_seeds(sweep_text.ranges(seeds))) == seeds


def test_ranges_are_short() -> None:
    assert sweep_text.ranges([0, 1, 2, 3, 7, 9, 8, 2**32 - 1]) == "0-3,7,9,8,4294967295"
    assert sweep_text.ranges([]) == ""


def table() -> dict[str, Any]:
    entry = {"value": 0.5, "low": 0.4, "high": 0.6}
    measures = {"SR_P": entry, "NashConv": entry | {"low": None}}
    done = {"seed": 0, "run": "a=1/seed-0", "state": "finished", "step": 4096, "games": 1000, "below": 1,
            "pairings": 8, "verdict": "weak: 1 of 8", "measures": measures}
    bad = {"seed": 1, "run": "a=1/seed-1", "state": "failed", "why": "out of\x1b[2J | memory"}
    iqm = {name: entry | {"n": 1} for name in measures}
    first = {"cell": "a=1", "values": {"a": "1"}, "runs": [done, bad], "iqm": iqm}
    second = {"cell": "a=<b>|c", "values": {}, "iqm": {}, "runs": [
        {"seed": 0, "run": "x", "state": "unfinished"}, {"seed": 1, "run": "x", "state": "waiting"}]}
    return {"sweep": "s", "rematch": "1, 2", "recipe": "r", "seeds": "0-1", "added": "1", "game": "g",
            "grid": {}, "finished": 1, "failed": 1, "unfinished": 1, "waiting": 1,
            "cells": [first, second]}


def test_table_has_a_line_for_every_seed_and_counts_failures() -> None:
    text = "\n".join(sweep_text.lines(table()))
    assert "seeds 0-1: 1 of 4 runs finished, 1 failed, 1 unfinished, 1 not started" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["0", "0.500", "[0.400,", "0.600]", "0.500", "1", "of", "8", "1000", "4.10", "K", "weak"] in rows
    assert ["1", "-", "-", "-", "-", "-", "FAILED"] in rows
    assert ["0", "-", "-", "-", "unfinished"] in rows and ["1", "-", "-", "-", "not", "started"] in rows
    assert any(row[:3] == ["IQM", "of", "1"] and row[-4:] == ["1", "weak,", "1", "failed"] for row in rows)
    both = ["0.500", "[0.400,", "0.600]"] * 2
    assert ["a=1", "1", "of", "2", *both, "1", "weak,", "1", "failed"] in rows
    for note in ("Seeds 1 were added later", "more than one version of rematch: 1, 2",
                 "1 failed and are not in the means"):
        assert note in text
    assert "\x1b" not in text


def test_markdown_is_a_table_for_any_names() -> None:
    page = sweep_text.markdown(table())
    assert page[0].startswith("# Sweep s: r (g), ") and r"## a=1" in page and r"## a=\<b>\|c" in page
    heads = [i for i, line in enumerate(page) if line.startswith("| --- |")]
    assert len(heads) == 3
    for at in heads:
        rows = [page[at - 1]]
        while page[at + len(rows)].startswith("| "):
            rows.append(page[at + len(rows)])
        edges = {row.replace(r"\|", "").count("|") for row in rows}
        assert edges == {page[at].count("|")}, rows
    assert any(r"out of \[2J \| memory" in line for line in page)
