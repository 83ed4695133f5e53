"""The console: plain lines in a pipe, a live panel on a terminal, and no error that ends a training."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest
from support.evaluation_rows import entry, evaluated

from rematch.reporting import console as module
from rematch.reporting.console import Console

HOSTILE = "quick [red]\x1b[31m\rforged\nline"


def metrics_row(step: int = 98_304) -> dict[str, Any]:
    return {"iteration": 3, "step": step, "games": 812, "rollout/win_pursuer": 0.5, "rollout/length": 200.0,
            **{f"{role}/{key}": 0.25 for role in ("pursuer", "evader") for key, _ in module.ROLE_METRICS}}


def print_everything(console: Console) -> None:
    """All output of a run, with hostile names."""
    console.start(HOSTILE, 1_000_000)
    console.line(HOSTILE)
    console.progress(98_304, 512_345.0, metrics_row())
    console.evaluation(evaluated(table=[entry(rival=HOSTILE)]))
    console.stop()
    console.scoreboard(evaluated(table=[entry(rival=HOSTILE)], verdict=HOSTILE))
    console.list_files({"picture": HOSTILE})


def test_piped_output_is_plain_lines() -> None:
    out = io.StringIO()
    print_everything(Console(out))
    text = out.getvalue()
    assert "\r" not in text and "\x1b" not in text
    assert all(c == "\n" or c.isprintable() for c in text)
    for word in ("512 K steps/s", "98.3 K of 1.00 M (10 %)", "NE-GAP 0.040 (upper bound 0.102)", "SR_P 0.520",
                 "SR_E 0.480", "[0.913, 0.945]", "1000 games", "0:02 left", "Verdict:"):
        assert word in text, word


def test_line_is_flushed_at_once() -> None:
    class Counting(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    out = Counting()
    console = Console(out)
    for i in range(5):
        console.line(f"line {i}")
        assert out.flushed == i + 1


def test_progress_lines_are_spaced_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def lines(every: float) -> int:
        out = io.StringIO()
        console = Console(out, every=every)
        for step in range(40):
            now[0] += 0.25
            console.progress(step, 1000.0, {})
        return out.getvalue().count("\n")

    assert lines(2.0) == 5 and lines(0) == 40


def test_trends_fit_80_columns_and_say_what_they_show() -> None:
    console = Console(io.StringIO(), live=True)
    for step in range(60):
        console.progress(step, 1000.0, metrics_row() | {"rollout/win_evader": step / 60})
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row) for row in console.panel_rows(80, 24)]
    trends = [row for row in rows if "▁" in row or "▅" in row]
    words = [re.sub("[▁▂▃▄▅▆▇█]+", "*", row).strip("│ ").split() for row in trends]
    assert words == [["wins", "pursuer", "*", "evader", "*"], ["entropy", "pursuer", "*", "evader", "*"]]
    assert not any("…" in row for row in rows) and all(len(row) <= 80 for row in rows)


def test_live_view_shows_names_and_interprets_none() -> None:
    from rich.console import Console as Screen

    console = Console(io.StringIO(), live=True)
    print_everything(console)
    console.lines.append("Pool snapshot 3 joins")
    screen = Screen(record=True, file=io.StringIO(), width=100, force_terminal=True)
    screen.print(console.panel())
    text = screen.export_text()
    for word in ("98.3 K of 1.00 M steps", "512 K steps/s", "0:02 left", "pursuer", "entropy", "0.250",
                 "[0.913, 0.945]", "quick [red]", "Pool snapshot 3 joins", "NE-GAP 0.040"):
        assert word in text, word
    assert "\x1b[31m" not in text and "\r" not in text


def test_live_view_fits_a_small_terminal() -> None:
    console = Console(io.StringIO(), live=True)
    console.start("quick", 10)
    console.evaluation(evaluated(table=[entry(score=i / 100) for i in range(40)]))
    for i in range(30):
        console.line(f"line {i}")
    console.progress(1, 1.0, metrics_row())
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row) for row in console.panel_rows(80, 24)]
    console.stop()
    assert len(rows) <= 24 and rows[-1].startswith("╰") and max(map(len, rows)) <= 80
    assert "0.000" in "".join(rows) and "0.390" not in "".join(rows), "the weakest come first"


@pytest.mark.parametrize(("environment", "live"), [
    ({"TERM": "xterm-256color"}, True), ({"TERM": "dumb"}, False), ({"TERM": ""}, False)])
def test_terminal_that_cannot_draw_gets_lines(
    environment: dict[str, str], live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert Console(Terminal()).live is live
    assert Console(io.StringIO()).live is False


def test_no_color_removes_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def colours() -> list[str]:
        out = io.StringIO()
        print_everything(Console(out, live=True))
        return re.findall(r"\x1b\[[0-9;]*(?:3[0-8]|9[0-7])[0-9;]*m", out.getvalue())

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


SCRIPT = """
import sys
from rematch.reporting.console import Console
console = Console(every=0)
console.start("pipe", 10)
for step in range(20000):
    console.progress(step, 1.0, {})
    console.line("some words that fill the pipe soon enough")
console.scoreboard({}); console.list_files({}); console.stop()
print("goes on", console.off, file=sys.stderr)
"""


def test_reader_that_leaves_does_not_end_the_training() -> None:
    run = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    assert run.stdout is not None and run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    errors = run.stderr.read()
    run.stderr.close()
    assert (run.wait(), errors) == (0, "goes on True\n")


def test_terminal_that_hangs_up_does_not_end_the_training() -> None:
    parent, child = pty.openpty()
    run = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=child, stderr=subprocess.PIPE, text=True,
                           env={**os.environ, "TERM": "xterm-256color"})
    os.close(child)
    assert run.stderr is not None
    first_bytes = b""
    while b"pipe" not in first_bytes:
        first_bytes += os.read(parent, 4096)
    os.close(parent)
    errors = run.stderr.read()
    run.stderr.close()
    assert (run.wait(), errors) == (0, "goes on True\n")


@pytest.mark.parametrize("live", [False, True])
def test_wrong_values_raise_nothing(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    console = Console(out, live=live, every=0)
    console.start("rubbish", 0)
    console.progress(-1, float("nan"), {"pursuer/entropy": None, "x/kl": "text", "": 3})
    console.evaluation({"rates": 3, "table": [None], "gap": "?"})
    console.evaluation({})
    console.progress(None, "fast", [])  # type: ignore[arg-type]
    console.line("still here")
    console.scoreboard({"table": "x"})
    console.scoreboard({})
    console.list_files(["one", "two"])
    console.stop()
    assert "still here" in out.getvalue() and "two" in out.getvalue()


def test_ascii_stream_gets_question_marks() -> None:
    raw = io.BytesIO()
    console = Console(io.TextIOWrapper(raw, encoding="ascii"))
    console.line("größer · ½")
    assert raw.getvalue() == b"gr??er ? ?\n"


@pytest.mark.parametrize("live", [False, True])
def test_console_that_is_off_prints_nothing(live: bool) -> None:
    out = io.StringIO()
    console = Console(out, live=live)
    console.off = True
    print_everything(console)
    assert out.getvalue() == ""


def test_closed_stream_raises_nothing() -> None:
    out = io.StringIO()
    console = Console(out)
    out.close()
    print_everything(console)
    assert Console(out).live is False


def test_rich_is_loaded_only_for_the_live_view() -> None:
    code = ("import sys, io\nfrom rematch.reporting.console import Console\n"
            "c = Console(io.StringIO(), live=False)\n"
            "c.start('a', 1); c.progress(1, 1.0, {}); c.evaluation({}); c.scoreboard({})\n"
            "print(sorted(m for m in ('rich', 'matplotlib', 'PIL', 'torch') if m in sys.modules))")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


EPISODES = {"recent/episodes": 1342.0, "recent/length": 642.0, "recent/return_env": 23.5,
            "recent/return_total": 31.8, "joypad/epsilon": 0.4, "theta/badge_Boulder": 0.81,
            "theta/badge_Cascade": 0.42, "spawn/early": 0.45, "spawn/mid": 0.35, "spawn/late": 0.2}
DASHBOARD = ("R_env 23.5  R_total 31.8  length 642  episodes 1.34 K  ε 0.40  Boulder 0.81, Cascade 0.42  "
             "spawn: early 45% | mid 35% | late 20%")


def test_dashboard_of_episodes_is_one_line() -> None:
    from rich.console import Console as Screen

    console = Console(io.StringIO(), live=True)
    console.total, console.step, console.metrics = 5_000_000, 2_500_000, EPISODES
    for width in (200, 80):
        screen = Screen(width=width, height=24, record=True, file=io.StringIO())
        screen.print(console.panel())
        lines = [line for line in screen.export_text().splitlines() if "R_env" in line]
        assert len(lines) == 1 and (width == 80 or DASHBOARD in lines[0])


def test_log_lines_of_the_panel_are_wrapped_and_never_cut() -> None:
    """The structured line of an episode log has 250 characters; a terminal has 80 columns and 24 rows."""
    words = [f"value_{index}=0.{index:04d}" for index in range(18)]
    console = Console(io.StringIO(), live=True)
    console.metrics = EPISODES
    for number in range(5):
        console.lines.append(f"step={number}  " + "  ".join(words))
    for width, height in ((160, 50), (80, 24)):
        rows = console.panel_rows(width, height)
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(rows))
        assert "…" not in text
        assert len(text.splitlines()) <= height, "the newest lines only"
        newest = text[text.index("step=4") :]
        assert all(word in newest for word in words)
        assert ("step=0" in text) == (width == 160)


def test_progress_of_episodes_is_left_to_the_episode_log() -> None:
    out = io.StringIO()
    console = Console(out, every=0.0)
    console.progress(2_500_000, 1012.0, EPISODES)
    assert out.getvalue() == ""


def test_progress_line_of_micro_phases_shows_both_roles() -> None:
    """One role learns in an iteration; the other one keeps the numbers of its own last iteration."""
    out = io.StringIO()
    console = Console(out, every=0)
    console.progress(1, 10.0, {"pursuer/entropy": 0.25, "pursuer/kl": 0.5, "rollout/length": 7.0})
    console.progress(2, 10.0, {"evader/entropy": 0.75, "evader/kl": 0.5})
    newest = out.getvalue().splitlines()[-1]
    assert "pursuer: entropy 0.250" in newest and "evader: entropy 0.750" in newest
    assert "rollout/length" not in console.metrics, "only numbers of roles are kept"


def test_console_and_status_define_speed_alike() -> None:
    """The median of the newest 20 iterations, in steps of all games: one slow iteration moves neither."""
    console = Console(io.StringIO())
    for rate in [1.0] * 50 + [100.0] * 19 + [5.0]:
        console.progress(1, rate, {})
    assert console.rate == 100.0
