"""What a person sees on a terminal: panels and bars that fit, follow a resize, and answer Ctrl-C."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyte
import pytest
from support.blank import white
from support.patience import PATIENCE
from support.terminal import Terminal
from support.tiny_run import SMALL, flags

import rematch
from rematch.reporting import learning_curves, match_film
from rematch.reporting.terminal.live_area import LiveArea

Open = Callable[..., Terminal]
SIZES = [(80, 24), (120, 40)]
LONG_RUN = ["-m", "rematch", "train", "quick", *flags(total_steps=3_200_000, evaluation__every=50)]

BAR = """
import time
from pathlib import Path
from rematch.core.system.progress import PROGRESS
from rematch.reporting.terminal import progress_display
progress_display.WARM_UP = 0.3
with progress_display.ProgressDisplay() as display:
    display.line("first line that stays")
    for step in PROGRESS.each(range(400)):
        PROGRESS.report(0.5, f"part {step} of a rather long operation with many words\\n  a row of its own")
        if not Path("enough").exists():
            time.sleep(0.02)
    display.line("last line that stays")
print("result")
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    opened = []

    def start(command: Sequence[str], columns: int, lines: int) -> Terminal:
        opened.append(Terminal(command, columns, lines, tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_drawn_lines_of_full_width_keep_their_last_column() -> None:
    """xterm erases the last column where a line ends there and an erasing sequence follows."""
    stream = io.StringIO()
    area = LiveArea(stream)
    for rows in (["a" * 80, "b" * 80], ["c" * 80]):
        area.draw(rows)
        assert not re.search(r"[abc]\x1b\[[JK]", stream.getvalue())
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(stream.getvalue().replace("\n", "\r\n"))
    assert [row for row in screen.display if row.strip()] == ["c" * 80]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_panel_fits_follows_a_resize_and_answers_ctrl_c(columns: int, lines: int, terminal: Open) -> None:
    view = terminal([*LONG_RUN, "--name", "x"], columns, lines)
    shown = ("left", "wins", "evaluation at step", "╰")  # the last line of a panel that is drawn as a whole
    text = view.wait(lambda text: all(part in text for part in shown))
    assert "of 3.20 M steps" in text and "▁" in text.replace("█", "▁"), "a bar, and trends"
    assert text.count("╭") == text.count("╰") == 1
    for width, height in ((columns - 20, lines), (columns + 10, lines - 4), (columns, lines)):
        view.resize(width, height)
        view.wait(lambda text, width=width: any(  # type: ignore[misc]
            row.endswith("──╮") and len(row) == width for row in text.split("\n")))
        text = view.wait(lambda text: text.count("╰") == 1)
        assert text.count("╭") == text.count("╰") == 1, "no remains of an older panel"
    view.type("\x03")
    text = view.wait(lambda text: "Ctrl-C: saving" in text and "press Ctrl-C again" in text and "╰" in text)
    assert text.count("╭") == text.count("╰") == 1, "the typed ^C moves no line"
    assert view.end() == 0 and "continue with: rematch resume runs/x" in view.text.replace("\n", "")


def test_resumed_run_shows_where_it_is_at_once(terminal: Open) -> None:
    view = terminal([*LONG_RUN, "--name", "x"], 80, 24)
    view.wait(lambda text: "evaluation at step" in text)
    view.type("\x03")
    assert view.end() == 0
    again = terminal(["-m", "rematch", "resume", "x"], 80, 24)
    first = again.wait(lambda text: "of 3.20 M steps" in text and "╰" in text)
    assert " 0 of 3.20 M" not in first and "evaluation at step" in first
    assert "after " in first and " of 100,000 iterations" in first.replace("\n", " ")


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_bar_is_drawn_in_place_and_erased(
    columns: int, lines: int, terminal: Open, tmp_path: Path
) -> None:
    view = terminal(["-c", BAR], columns, lines)
    text = view.wait(lambda text: " left" in text and "━" in text)
    assert "first line that stays" in text and "a row of its own" in text
    assert sum(" %" in row for row in view.rows()) == 1 and max(map(len, view.rows())) < columns
    view.resize(columns - 30, lines)
    view.wait(lambda text: all(len(row) < columns - 30 for row in text.split("\n")) and " %" in text)
    assert sum(" %" in row for row in view.rows()) == 1 and "first line that stays" in view.text
    (tmp_path / "enough").touch()
    assert view.end() == 0
    assert [row for row in view.rows() if row] == ["first line that stays", "last line that stays", "result"]


def test_piped_progress_is_plain_lines(tmp_path: Path) -> None:
    import subprocess
    import sys

    from support.commands import environment

    code = BAR.replace("range(400)", "range(40)").replace(
        "progress_display.WARM_UP = 0.3", "progress_display.FIRST_LINE = 0.2")
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True,
                          cwd=tmp_path, timeout=PATIENCE)
    assert done.stdout.splitlines() == ["first line that stays", "last line that stays", "result"]
    rows = done.stderr.splitlines()
    assert 1 <= len(rows) <= 5 and all(row.startswith("progress: ") and " %" in row for row in rows)
    assert "\x1b" not in done.stderr


def test_game_boy_fits_a_small_terminal(terminal: Open) -> None:
    pytest.importorskip("pyboy")
    play = ["-m", "rematch", "play", "gameboy", "--terminal"]
    for columns, lines, shown in ((80, 24, 22), (120, 40, 36)):
        view = terminal(play, columns, lines)
        view.wait(lambda text: "q: leave" in text)
        picture = [row for row in view.rows() if row.startswith("▀")]
        assert len(picture) == shown and view.rows()[0].startswith("▀"), "the top of the picture is visible"
        assert "reward" in view.text and ("sharper with 80 x 38" in view.text) == (lines == 24)
        view.resize(60, 20)
        view.type("d")
        view.wait(lambda text: sum(row.startswith("▀") for row in text.split("\n")) == 18 and "leave" in text)
        view.type("q")
        assert view.end() == 0
    small = terminal(play, 38, 12)
    assert small.end() == 2 and "expected at least 40 and 14" in small.text.replace("\n", "")


def test_sweep_shows_every_run_and_ctrl_c_leaves_no_bar(terminal: Open) -> None:
    words = flags(total_steps=3_200_000, evaluation__every=1000)
    view = terminal(["-m", "rematch", "sweep", "quick", "--seeds", "0-1", "--jobs", "1", *words], 80, 24)
    text = view.wait(lambda text: "pursuer wins" in text)  # once a first game has ended
    assert "seed-0  " in text and "0 of 2 runs ended" in text and "of 3.20 M steps" in text
    view.type("\x03")
    view.wait(lambda text: "press Ctrl-C again to stop now" in text.replace("\n", " "))
    assert view.end() == 0 and "stopped (SIGINT); continue with" in view.text.replace("\n", " ")
    assert "━" not in view.text


def test_interrupted_command_leaves_no_bar(terminal: Open) -> None:
    code = BAR.replace("with progress", "from rematch.cli.main import main\nimport sys\n"
                       "def act(words):\n with progress").replace("\n    ", "\n  ").replace(
                           '\nprint("result")', "\nsys.exit(main([], act))")
    view = terminal(["-c", code], 80, 24)
    view.wait(lambda text: " left" in text)
    view.type("\x03")
    assert view.end() == 130
    assert "rematch: interrupted" in view.text and "━" not in view.text


LONG_COMMANDS = {
    "eval": "eval RUN --games 100000",
    "tournament": "tournament pursuit RUN random lead_pursuit --games 100000",
    "report": "report RUN --games 100000",
    "exploit": "exploit RUN --budget 200000 --seeds 1 --games 100",
    "film": "film pursuit --players stand_still,stand_still --out x.gif --choose longest --games 10000",
    "bench": "bench pursuit --seconds 1",
    "solve": "solve lattice --n 11",
}


# The time left is shown after a fraction of a second instead of two, in which the command uses all cores.
EARLY = ("import sys; from rematch.cli.main import main; "
         "from rematch.reporting.terminal import progress_display; progress_display.WARM_UP = 0.2; "
         "sys.exit(main())")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "one"
    long_games = {"past_policies.count": 3, "evaluation.every": 1, "world.max_steps": 400}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_curves, "learning", lambda *_: white.png())
        patch.setattr(match_film, "film", lambda *_, **__: (white.gif(), ""))
        rematch.train("quick", SMALL | long_games, folder=folder)
    return folder


@pytest.mark.parametrize(("columns", "lines"), [SIZES[0], pytest.param(*SIZES[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_long_command_shows_the_time_left_and_answers_ctrl_c(
    name: str, columns: int, lines: int, terminal: Open, trained: Path
) -> None:
    words = [str(trained) if word == "RUN" else word for word in LONG_COMMANDS[name].split()]
    view = terminal(["-c", EARLY, *words], columns, lines)
    text = view.wait(lambda text: " left" in text and " %" in text)
    assert max(map(len, text.split("\n"))) <= columns
    view.type("\x03")
    assert view.end() == 130 and "━" not in view.text
