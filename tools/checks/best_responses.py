"""Whether `rematch exploit` is strong enough: its best responses, where a yardstick for them exists.

    python tools/checks/best_responses.py lattices [--only n5,n9-block3] [--budget 10000000] [--out FOLDER]
    python tools/checks/best_responses.py run NAME RUN [--budget 10000000] [--responses 3]
    python tools/checks/best_responses.py add FILE      lines in the records of `gpu.py responses`
    python tools/checks/best_responses.py publish

`lattices` trains the recipe `lattice` on the four boards of tools/experiments/nash_conv_table.py and searches
for best responses: on each board, for each role, at least 90 % of the exact gain must be found. `run`
searches for best responses to a finished run of any game under a name for the tables: for each role a fresh
response must reach at least 95 % of the incumbent's score. Both can be interrupted and started again. Every
result is a line in docs/results/data/best_responses.jsonl, from which `publish` writes the tables of
docs/results/best_responses.md. Exit code 1: a criterion is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools/experiments")]

from nash_conv_table import LATTICES, TITLES, train_cell  # noqa: E402

from rematch import api  # noqa: E402
from rematch.cli.main import main as run_command  # noqa: E402
from rematch.core.errors import ConfigError  # noqa: E402
from rematch.training.best_response import BUDGET, MIN_SHARE, ExploitRequest  # noqa: E402
from rematch.training.response_training import SELF_PLAY  # noqa: E402
from rematch.verbs.exploit import exploit  # noqa: E402

PAGE, RESULTS = ROOT / "docs/results/best_responses.md", ROOT / "docs/results/data/best_responses.jsonl"
BEGIN, END = "<!-- tools/checks/best_responses.py publish -->", "<!-- until here -->"
ROW = "together+reg"  # the settings of the recipe `lattice`
MIN_GAIN_SHARE = 0.9  # of the exact gain
KEY = ("game", "seed", "role", "budget", "responses")  # with self_play: a later line with equal values
# replaces the earlier

Line = dict[str, Any]


def measured_tree() -> str:
    """The commit of this tree; with "+changes" where program files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changes = git("status", "--porcelain", "--", "rematch", "tools/checks/best_responses.py")
    return git("rev-parse", "--short", "HEAD") + ("+changes" if changes else "")


def measure(name: str, folder: Path, request: ExploitRequest, device: str = "") -> list[Line]:
    """A line per role: the best response, the share of fresh ones, and the share of the exact gain."""
    commit, seed = measured_tree(), api.load(folder).config.seed
    result = exploit(folder, request, lambda text: print(f"{name}: {text}", flush=True), device=device)
    lines = []
    for role, answer in result["roles"].items():
        rates = {key: round(answer[key], 4) for key in ("score", "low", "high", "gain", "gain_low",
                                                        "gain_high")}  # fmt: skip
        lines.append({
            "game": name, "seed": seed, "role": role, "budget": request.budget, "responses": request.seeds,
            "games": answer["games"], "best": answer["start"], "play": answer["play"], **rates,
            "incumbent": short_rate(answer["incumbent"]), "fresh": short_rate(answer["fresh"]),
            "fresh_share": round(answer["fresh"]["share"], 4), "exact": exact_of(answer),
            "trials": [trial_of(trial) for trial in answer["trials"]],
            "commit": commit,
        })  # fmt: skip
        if any(trial["start"] == SELF_PLAY for trial in answer["trials"]):
            lines[-1]["self_play"] = request.self_play_steps
    return lines


def trial_of(trial: Mapping[str, Any]) -> list[Any]:
    """Kind, number, steps, play and score of a candidate in the games of the selection."""
    return [trial["start"], trial["seed"], trial["steps"], trial["play"], round(trial["score"], 4)]


def short_rate(rate: Mapping[str, Any]) -> list[float]:
    return [round(rate[key], 4) for key in ("score", "low", "high")]


def exact_of(answer: Mapping[str, Any]) -> Line | None:
    """Exact scores of the best response, the incumbent and the response found; None where none are known."""
    exact = answer.get("exact")
    if exact is None:
        return None
    return {key: None if value is None else round(value, 5) for key, value in exact.items()}


def gain_share(line: Line) -> float | None:
    """The share of the exact gain that was found; None where no exact gain is known or none exists."""
    return None if line["exact"] is None else line["exact"]["share_found"]


def reaches(line: Line) -> bool:
    """The criterion of a line: the share of the exact gain where it is known, else that of the incumbent."""
    if line["exact"] is None:
        return bool(line["fresh_share"] >= MIN_SHARE)
    share = gain_share(line)
    return share is None or share >= MIN_GAIN_SHARE


# --- results file and page ---------------------------------------------------------------------------------


def load_lines(results: Path | None = None) -> list[Line]:
    file = results or RESULTS
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def key_of(line: Line) -> tuple[Any, ...]:
    return (*(line[key] for key in KEY), line.get("self_play", 0))


def add_lines(new: Sequence[Line], results: Path | None = None) -> None:
    lines = {key_of(line): line for line in [*load_lines(results), *new]}
    (results or RESULTS).write_text("".join(json.dumps(lines[key]) + "\n" for key in sorted(lines)))


def lines_of_records(file: Path) -> list[Line]:
    """The lines in the records that `tools/checks/gpu.py responses` has written."""
    records = [json.loads(text) for text in file.read_text().splitlines()]
    return [line for record in records for line in record.get("lines", []) if isinstance(line, dict)]


def interval(rate: Sequence[float]) -> str:
    return f"{rate[0]:.3f} [{rate[1]:.3f}, {rate[2]:.3f}]"


def described(line: Line) -> str:
    """What was searched: board or run, its seed, the role, the size of the search."""
    game = TITLES.get(line["game"], line["game"])
    size = f"{line['budget'] / 1e6:g} M × {line['responses']}"
    if "self_play" in line:
        size += f", self-play {line['self_play'] / 1e6:g} M"
    return f"| {game} | {line['seed']} | {line['role']} | {size} | {line['games']} "


def verdict(line: Line) -> str:
    return "reached" if reaches(line) else "**missed**"


def exact_table(lines: Sequence[Line]) -> list[str]:
    text = ["| board | seed | role | steps × responses of a kind | n | incumbent, exact | found, exact | "
            "best response, exact | share of the gain | at least 90 % | kind | commit |",
            "| --- " * 12 + "|"]
    for line in lines:
        exact, share = line["exact"], gain_share(line)
        gain = exact["best"] - exact["incumbent"]
        part = "no gain is possible" if share is None else f"{share:.0%} of {gain:.4f}"
        scores = " | ".join(f"{exact[key]:.4f}" for key in ("incumbent", "found", "best"))
        text.append(f"{described(line)}| {scores} | {part} | {verdict(line)} "
                    f"| {line['best']}, {line['play']} | {line['commit']} |")
    return text


def share_table(lines: Sequence[Line]) -> list[str]:
    text = ["| run | seed | role | steps × responses of a kind | n | incumbent | best fresh response | share "
            "| at least 95 % | best of all | gain | commit |",
            "| --- " * 12 + "|"]
    for line in lines:
        best = f"{interval([line['score'], line['low'], line['high']])} ({line['best']}, {line['play']})"
        gain = f"{line['gain']:+.3f} [{line['gain_low']:+.3f}, {line['gain_high']:+.3f}]"
        text.append(f"{described(line)}| {interval(line['incumbent'])} | {interval(line['fresh'])} "
                    f"| {line['fresh_share']:.0%} | {verdict(line)} | {best} | {gain} "
                    f"| {line['commit']} |")
    return text


def trial_table(lines: Sequence[Line]) -> list[str]:
    """The score of every response in the games of the selection, the better of sampled and greedy play."""
    text = ["| run | seed | role | every response: kind, number, steps, score |", "| --- " * 4 + "|"]
    for line in lines:
        best: dict[tuple[str, int, int], float] = {}
        for start, number, steps, _, score in line["trials"]:
            key = (start, number, steps)
            best[key] = max(score, best.get(key, 0.0))
        cells = [f"{start} {number} ({steps / 1e6:.1f} M) {score:.3f}"
                 for (start, number, steps), score in best.items()]
        text.append(f"| {TITLES.get(line['game'], line['game'])} | {line['seed']} | {line['role']} | "
                    f"{'; '.join(cells)} |")
    return text


def tables(lines: Sequence[Line]) -> list[str]:
    exact = [line for line in lines if line["exact"] is not None]
    others = [line for line in lines if line["exact"] is None]
    text: list[str] = []
    if exact:
        text += ["", "### Boards with an exact answer", "", *exact_table(exact)]
    if others:
        text += ["", "### Runs without one", "", *share_table(others)]
    return [*text, "", "### Every response", "", *trial_table(lines)] if lines else text


def page() -> str:
    before, _, remainder = PAGE.read_text().partition(BEGIN)
    content = "\n".join(tables(load_lines()))
    return before + BEGIN + "\n" + content + "\n\n" + END + remainder.partition(END)[2]


# --- command line ------------------------------------------------------------------------------------------


def report(lines: Sequence[Line], results: Path | None = None) -> int:
    """Store and print the lines; 1 where one misses its criterion."""
    add_lines(lines, results)
    for line in lines:
        share = gain_share(line)
        known = "" if line["exact"] is None or share is None else f", {share:.0%} of the exact gain"
        print(f"{line['game']} seed {line['seed']} {line['role']}: fresh {line['fresh_share']:.0%} of the "
              f"incumbent{known}: {'reached' if reaches(line) else 'missed'}", flush=True)
    return int(not all(map(reaches, lines)))


def lattices(args: argparse.Namespace) -> int:
    names = [name for name in args.only.split(",") if name] or list(LATTICES)
    for name in names:
        if name not in LATTICES:
            raise ConfigError(f"--only {name}: expected some of {', '.join(LATTICES)}")
    missed = 0
    for name in names:
        train_cell(name, ROW, args.seed, args.out)
        lines = measure(name, args.out / name / ROW / str(args.seed), request_of(args), args.device)
        missed |= report(lines, args.results)
    return missed


def request_of(args: argparse.Namespace) -> ExploitRequest:
    roles = (args.role,) if args.role else ()
    return ExploitRequest(budget=args.budget, self_play=args.self_play, seeds=args.responses,
                          games=args.games, roles=roles)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("lattices", "run", "add", "publish"))
    parser.add_argument("name", nargs="?", default="", help="name of a run, or a file of records")
    parser.add_argument("run", nargs="?", default="", help="folder of a finished run")
    parser.add_argument("--only", default="", help=f"boards, with commas (default {','.join(LATTICES)})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the lattice runs (default %(default)s)")
    parser.add_argument("--budget", type=int, default=BUDGET,
                        help="steps of a response, at most (default %(default)s)")
    parser.add_argument("--self-play", type=int, default=-1,
                        help="steps of the training by self-play (default: ten budgets)")
    parser.add_argument("--role", default="", help="role that responds (default: every role)")
    parser.add_argument("--responses", type=int, default=2, help="responses of a kind (default %(default)s)")
    parser.add_argument("--games", type=int, default=4000, help="games of a match (default %(default)s)")
    parser.add_argument("--device", default="", help="device of the responses (default: that of the run)")
    parser.add_argument("--out", type=Path, default=Path("runs/best_responses"),
                        help="folder of the lattice runs (default %(default)s)")
    parser.add_argument("--results", type=Path, help="file of the lines (default: that of the page)")
    args = parser.parse_args(arguments)
    for name in ("budget", "responses", "games"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} = {getattr(args, name)}: expected at least 1")
    if [bool(args.name), bool(args.run)] != [args.what in ("run", "add"), args.what == "run"]:
        raise ConfigError("expected lattices, run NAME RUN, add FILE, or publish")
    if args.what == "add":
        add_lines(lines_of_records(Path(args.name)), args.results)
        return 0
    if args.what == "publish":
        PAGE.write_text(page())
        return 0
    if args.what == "lattices":
        return lattices(args)
    return report(measure(args.name, Path(args.run), request_of(args), args.device), args.results)


if __name__ == "__main__":
    sys.exit(run_command(act=main))
