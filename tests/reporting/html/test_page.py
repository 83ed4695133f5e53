"""report.html: complete from good files, clear about bad ones, safe with hostile ones; the same in JSON."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.evaluation_rows import entry, evaluated, rate_row
from support.html_reader import TAGS, Reader

from rematch.evaluation.text import human, number
from rematch.reporting.html import page as report
from rematch.reporting.run_summary import facts, page
from rematch.reporting.text import BALANCE
from rematch.reporting.untrusted_folder import FILES

EVIL = '<script>alert(1)</script>"\'><img src=x onerror=alert(1)>&\x1b[31m'


def evaluation(opponent: str = "flee_straight", verdict: str = "improving") -> dict[str, Any]:
    rates = {role: rate_row(0.5) for role in ("pursuer", "evader")}
    table = [entry(rival=opponent, best_bot_low=0.858, best_bot_high=0.899)]
    return evaluated(iteration=3, step=98_304, rates=rates, gap=0.0, gap_high=0.062, SR_P=0.5, SR_E=0.5,
                     table=table, verdict=verdict)


def fill(folder: Path, word: str = "flee_straight", verdict: str = "improving") -> Path:
    folder.mkdir()
    (folder / "history.json").write_text(json.dumps([evaluation(), evaluation(word, verdict)]))
    (folder / "metrics.jsonl").write_text('{"iteration": 1, "step": 98304, "games": 812}\n')
    (folder / "config.yaml").write_text(f"name: {json.dumps(word)}\nworld: pursuit\nppo:\n  clip: 0.2\n")
    columns = [{"column": word, "min": 0, "max": 0, "mean": 0.0, "constant": True},
               {"column": "own.x", "min": -1, "max": 1, "mean": 0.1, "constant": False}]
    (folder / "observations.json").write_text(json.dumps({"pursuer": columns, "evader": columns[1:]}))
    Image.new("RGB", (9, 9)).save(folder / "learning.png")
    Image.new("RGB", (9, 9)).save(folder / "match.gif")
    return folder


def test_only_films_of_drawings_are_inverted_in_dark_mode(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    mark = 'class="drawing"'
    assert mark not in page(run), "a black film"
    Image.new("RGB", (9, 9), "white").save(run / "match.gif")
    assert mark in page(run)
    for damaged in (b"", b"GIF89a", b"GIF89a" + 900 * b"\xff", (run / "match.gif").read_bytes()[:30]):
        (run / "match.gif").write_bytes(damaged)
        assert mark not in page(run)
    Image.new("L", (2001, 2000), "white").save(run / "match.gif")
    assert mark not in page(run), "too large to be looked at"


def test_page_of_a_good_folder_has_all_sections_verdict_first(tmp_path: Path) -> None:
    read = Reader(page(fill(tmp_path / "run", verdict="balanced but weak")))
    order = [read.words.index(word) for word in (
        "Verdict", "BALANCED BUT WEAK", "Learning curves", "NE gap beside exploitability",
        "Alarms and rollbacks", "Head to head", "Learning in detail", "One game",
        "Observations", "Settings", "Provenance", "Sections without content", "Payoff matrix",
        "Forgetting: it needs",
        "Curriculum: the run has no curriculum")]
    assert order == sorted(order)
    for word in ("0.931", "[0.913, 0.945]", "1000", "pure_pursuit", "[0.858, 0.899]", "above", BALANCE,
                 "NE gap 0.000, upper bound 0.062", "1 constant: flee_straight", "none constant",
                 "clip: 0.2"):
        assert word in read.words, word
    sources = [attributes["src"] or "" for tag, attributes in read.used if tag == "img"]
    assert [s.partition(";")[0] for s in sources] == ["data:image/png", "data:image/gif"]


def test_page_loads_nothing(tmp_path: Path) -> None:
    read = Reader(page(fill(tmp_path / "run")))
    assert not {tag for tag, _ in read.used} & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for _, attributes in read.used:
        assert not any(key.startswith("on") or key in ("href", "srcset") for key in attributes)
    assert any("default-src 'none'" in str(attributes.get("content")) for _, attributes in read.used)


def test_page_escapes_hostile_text(tmp_path: Path) -> None:
    text = page(fill(tmp_path / "run", word=EVIL, verdict=EVIL))
    read = Reader(text)
    assert "<script" not in text and "\x1b" not in text
    assert {tag for tag, _ in read.used} <= TAGS
    assert read.words.lower().count("<script>alert(1)</script>") >= 4


def test_page_depends_on_the_files_alone(tmp_path: Path) -> None:
    one, two = fill(tmp_path / "undisturbed"), fill(tmp_path / "resumed")
    (two / "timing.jsonl").write_text('{"event": "resume", "seconds": 3}\n')
    (two / "train.log").write_text("other words\n")
    os.utime(two / "history.json", (0, 0))
    assert page(one) == page(two) == page(one)
    assert not re.search(r"\d\d:\d\d:|20\d\d-\d\d|undisturbed", page(one))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "rubbish", "wrong", "folder", "link", "pipe"])
def test_bad_file_costs_only_its_section(name: str, damage: str, tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    path = run / name
    secret = tmp_path / "secret"
    secret.write_text("GIF8 [\"not for the page\"]")
    path.unlink()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "rubbish":
        path.write_bytes(bytes(range(256)) * 4)
    elif damage == "wrong":
        path.write_text('[1, {"table": 3, "rates": [[]], "verdict": {}}, null]')
    elif damage == "folder":
        path.mkdir()
    elif damage == "link":
        path.symlink_to(secret)
    elif damage == "pipe":
        os.mkfifo(path)
    text = page(run)
    read = Reader(text)
    assert "Traceback" not in text and "not for the page" not in text
    assert read.words.count("Provenance") == 1
    if damage in ("missing", "folder", "link", "pipe"):
        assert name in read.words
    if name != "history.json":
        assert "[0.913, 0.945]" in read.words, "the other sections stand"
    else:
        assert "there is no evaluation yet" in read.words


leaf = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
tree = st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(("table", "rates", "verdict", "gap", "step", "score", "low", "high", "pursuer", "games",
                     "level", "curriculum", "results", "roles", "question", "payoff", "config", "returns")),
    inner, max_size=5), max_leaves=12)


@settings(max_examples=60, deadline=None)
@given(history=tree, obs=tree)
def test_page_of_any_json(history: Any, obs: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        (run / "history.json").write_text(json.dumps([history]))
        (run / "observations.json").write_text(json.dumps(obs))
        (run / "exploit.json").write_text(json.dumps(obs))
        (run / "payoff.json").write_text(json.dumps(obs))
        (run / "metrics.jsonl").write_text(json.dumps(history) + "\n{torn")
        Reader(page(run))
        json.dumps(facts(run), allow_nan=False)


def test_observations_name_a_few_constant_columns(tmp_path: Path) -> None:
    """A Game Boy run has thousands of constant columns: their names filled pages."""
    run = fill(tmp_path / "run")
    columns = [{"column": f"pixel {i}", "constant": True} for i in range(2307)]
    (run / "observations.json").write_text(json.dumps({"joypad": columns}))
    names = ", ".join(f"pixel {i}" for i in range(8))
    assert f"joypad: 2307 numbers, 2307 constant: {names} and 2299 more" in Reader(page(run)).words


def test_observations_of_an_earlier_version_are_shown(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    (run / "observations.json").rename(run / "sight.json")
    assert "1 constant: flee_straight" in Reader(page(run)).words


def test_yaml_bomb_is_only_text(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    bomb = ["a0: &a0 {k: v}"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    (run / "config.yaml").write_text("\n".join([*bomb, "name: 'a [b'", "world: [*a29]"]))
    assert "<title>a [b</title>" in page(run)


def test_empty_history_is_stated(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    (run / "history.json").write_text("[]")
    assert "there is no evaluation yet" in page(run)


def test_truncated_history_is_one_clear_line(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    data = (run / "history.json").read_bytes()
    (run / "history.json").write_bytes(data[: len(data) // 2])
    read = Reader(page(run))
    assert facts(run)["problems"].count("history.json is damaged (not JSON)") == 1
    assert read.words.count("history.json is damaged (not JSON)") == 1


# --- what evaluations may carry ----------------------------------------------------------------------------


def test_curriculum_has_the_evidence_of_each_promotion(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    why = "rate 0.812 [0.770, 0.850], n = 320"
    rows = [evaluation() | {"step": 1000 * i, "level": i // 2, "level_name": f"far {i // 2}",
                            "evidence": why if i == 1 else ""} for i in range(4)]
    (run / "history.json").write_text(json.dumps(rows))
    (run / "train.log").write_text("Eval\nCURRICULUM level 1 <b>at last</b>\n")
    curriculum = facts(run)["curriculum"]
    moves = [(move["step"], move["before"], move["level"]) for move in curriculum["promotions"]]
    assert moves == [(2000, 0, 1)]
    read = Reader(page(run))
    for word in ("far 1", why, "level (number)", "CURRICULUM level 1 <b>at last</b>"):
        assert word in read.words, word


def test_rollbacks_have_their_steps(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    rows = [evaluation() | {"step": 1000 * i, "rollbacks": (0, 0, 2, 0, 1)[i]} for i in range(5)]
    (run / "history.json").write_text(json.dumps(rows))
    events = facts(run)["rollbacks"]["events"]
    assert events == [{"since": 1000, "step": 2000, "count": 2}, {"since": 3000, "step": 4000, "count": 1}]


# --- the same numbers --------------------------------------------------------------------------------------


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def test_json_has_every_number_of_the_tables(tmp_path: Path) -> None:
    summary = json.loads(json.dumps(facts(fill(tmp_path / "run"))))
    shown = set()
    for value in leaves(summary):
        shown |= {str(value), human(value), *(number(value, digits) for digits in (2, 3))}
    text = page(tmp_path / "run")
    cells = re.findall(r'<td class="n">([^<]*)</td>', text)
    figures = [word for cell in cells for word in re.findall(r"-?\d[\d.]*(?:e-?\d+)?(?: [KMGT])?", cell)]
    assert len(figures) > 20
    assert not [word for word in figures if word not in shown]
    assert report.page({"rematch": "0", "runs": [summary], "groups": []}, [{}]).count("0.931") >= 1


def test_page_shows_film_timeline_and_savestates(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    (run / "films").mkdir()
    for step in (900, 4096):
        Image.new("RGB", (9, 9)).save(run / "films" / f"rollout_{step}.gif")
    (run / "films" / "rollout_9999.gif.txt").write_text("not a film")
    milestones = {"DAWN": {"frontier": 763, "cold": 800}, EVIL: {"frontier": None, "cold": None}}
    (run / "milestones.json").write_text(json.dumps({"steps": 5000, "milestones": milestones}))
    state = {"file": "", "milestone": "power-on", "step": 0, "band": "early", "map": "", "parent": -1,
             "visits": 9, "successes": 4}
    (run / "savestates").mkdir()
    rows = [state, state | {"file": "DAWN_763.state", "map": EVIL, "step": 763, "visits": 5, "successes": 1}]
    (run / "savestates" / "index.json").write_text(json.dumps(rows))
    text = page(run)
    read = Reader(text)
    links = [dict(attributes)["href"] for tag, attributes in read.used if tag == "a"]
    assert "films/rollout_4096.gif" in read.words and links == ["films/rollout_900.gif"]
    assert report.FILM_NAMES not in report.pictures(run, linked=False)  # a page elsewhere has no links
    assert "Timeline of the milestones" in read.words and "Map of the savestates" in read.words
    assert "DAWN_763.state" in read.words and "<script" not in text and {tag for tag, _ in read.used} <= TAGS
    (run / "films" / "rollout_5000.gif").symlink_to(tmp_path / "elsewhere")
    (run / "savestates" / "index.json").write_text('[{"file": 3}]')
    damaged = Reader(page(run)).words
    assert "Map of the savestates" not in damaged and "Newest film" in damaged and "cannot be read" in damaged


def test_page_draws_the_world_map(tmp_path: Path) -> None:
    run = fill(tmp_path / "run")
    assert "World map" not in Reader(page(run)).words
    start, digest = "a" * 64, "b" * 64
    game = {"group": "late", "start": start, "inputs": None, "path": [[1, 4, 5], [1, 4, 6]]}
    stored = {"step": 4096, "games": [game], "savestates": [{"sha256": digest, "place": [1, 3, 3]}],
              "maps": [{"map": 1, "name": EVIL, "tiles": [[3, 3, 9], [3, 4, 1], [4, 4, 400]]}],
              "frontier": [[1, 3, 3], [1, 3, 4], [1, 9, 9]]}
    (run / "world_map.json").write_text(json.dumps(stored))
    text = page(run)
    read = Reader(text)
    assert "3 visited places on 1 maps, 1 games and 1 savestates at 4.10 K steps" in read.words
    classes = [attributes.get("class") for tag, attributes in read.used if tag in ("path", "circle")]
    assert {"flag plain", "game late", "trail", "t0", "t1", "t4"} - set(classes) <= {"t0", "t1"}
    assert "<script" not in text and {tag for tag, _ in read.used} <= TAGS
    json.dumps(facts(run), allow_nan=False)
    for damaged in ("{", json.dumps(stored | {"maps": 3}), json.dumps(stored | {"frontier": [[1, 2]]})):
        (run / "world_map.json").write_text(damaged)
        words = Reader(page(run)).words
        assert "world_map.json is damaged" in words and "Settings" in words


def test_quick_report_plays_no_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rematch.reporting import run_summary

    def never(*_: object) -> None:
        raise AssertionError("it plays")

    monkeypatch.setattr(run_summary, "matrix_of", never)
    run = fill(tmp_path / "run")
    (run / "checkpoints").mkdir()
    target, summary = run_summary.report([run], quick=True)
    assert summary["quick"] and report.QUICK in Reader(target.read_text()).words
