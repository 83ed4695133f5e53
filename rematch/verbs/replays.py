"""Replays of games: play and record them, list those of a run, verify them, and film them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rematch import api
from rematch.core.errors import ConfigError
from rematch.core.player import GreedyOption, Player, SubprocessPlayer
from rematch.core.recording import Replay
from rematch.core.system.progress import PROGRESS
from rematch.core.world import World
from rematch.evaluation import replay as recording
from rematch.evaluation.replay_choice import Choice
from rematch.evaluation.text import clean
from rematch.reporting import match_film, mp4
from rematch.reporting.result import Block, Printable, Table, block_html
from rematch.storage import atomic_files, replay_files
from rematch.storage.run_folder import REPLAY_FILE, REPLAY_FOLDER
from rematch.training.player_lookup import find_player, match_rules
from rematch.verbs.arguments import MOST_SEED, Log, check_integer, folder_of, silent, world_name
from rematch.verbs.evaluate import SEED_OFFSET, deployed
from rematch.worlds import registry

SECONDS = match_film.SECONDS  # longest film by default
SHORTEST, LONGEST = match_film.HOLD + 1, 600.0  # seconds of a film
GAMES, MOST_GAMES = 100, 10_000  # games that are played to find a certain outcome
BATCH = 25  # games that are played together
LISTED = 50  # replays of a run that are listed
FORMATS = (replay_files.SUFFIX, ".gif", ".mp4")


@dataclass(frozen=True, repr=False)
class Film(Printable):
    """A written film or replay and its caption; a notebook shows the film."""

    file: Path
    caption: str

    def blocks(self) -> Iterator[Block]:
        yield self.caption
        yield f"{self.file}  {self.file.stat().st_size:,} bytes"

    def _repr_html_(self) -> str:
        """The film itself: a notebook that is sent to someone else still shows it."""
        if self.file.suffix not in (".gif", ".mp4"):
            return super()._repr_html_()
        data = base64.b64encode(self.file.read_bytes()).decode()
        picture = f'<img alt="" src="data:image/gif;base64,{data}">'
        if self.file.suffix == ".mp4":
            picture = f'<video controls loop muted src="data:video/mp4;base64,{data}"></video>'
        return picture + block_html(self.caption)

    def to_dict(self) -> dict[str, Any]:
        return {"file": str(self.file), "caption": self.caption}


@dataclass(frozen=True, repr=False)
class Replays(Printable):
    """Replays with their facts; `verified` of them were stepped again without a difference."""

    files: Sequence[Path]
    replays: Sequence[Replay]
    verified: int = 0

    def blocks(self) -> Iterator[Block]:
        if len(self.replays) == 1:
            yield from self._facts(self.files[0], self.replays[0])
        else:
            rows = [["file", "training step", "result"]]
            rows += [[file.name, f"{replay.step or 0:,}", clean(replay.caption())]
                     for file, replay in list(zip(self.files, self.replays))[-LISTED:]]
            yield Table(rows, right=(1,))
        if self.verified:
            steps = sum(replay.length for replay in self.replays)
            games = f"{self.verified} game{'s' * (self.verified > 1)}"
            yield f"verified: {steps:,} steps of {games} gave the recorded states to the byte"

    def _facts(self, file: Path, replay: Replay) -> Iterator[Block]:
        yield f"{file}: {registry.title(replay.world)}, {clean(replay.caption())}"
        rows = [["seat", "player", "outcome", "weights (SHA-256)"]]
        for seat, player in enumerate(replay.players):
            rows.append([str(seat), clean(replay.seat_name(seat)), f"{replay.outcome[seat]:g}",
                         player.digest[:16] or "-"])
        yield Table(rows, right=(0, 2))
        start = f", from savestate {clean(replay.savestate)}" if replay.savestate else ""
        yield f"seed {replay.seed}, game {replay.game}{start}, rules of build {replay.build or '-'}"

    def to_dict(self) -> dict[str, Any]:
        entries = [
            {"file": str(file), "world": replay.world, "caption": replay.caption(), "length": replay.length,
             "end": replay.end, "outcome": list(replay.outcome), "seed": replay.seed, "step": replay.step,
             "players": [{"role": p.role, "name": p.name, "digest": p.digest} for p in replay.players]}
            for file, replay in zip(self.files, self.replays)
        ]  # fmt: skip
        return {"replays": entries, "verified": self.verified}


@dataclass(frozen=True, kw_only=True)
class GameChoice:
    """Which game: its players, its outcome, its seed."""

    players: Sequence[str] = ()  # a name for each seat or role; empty: the players of the run
    choose: str = ""  # outcome, such as "evader loses", drawn, shortest
    seed: int = 0
    games: int = GAMES  # games that are played until one ends as chosen
    greedy: bool = False  # policies take their most likely action

    @property
    def choice(self) -> Choice | None:
        return Choice.parse(self.choose) if self.choose else None


def film(
    source: Path | str, out: Path | str, game: GameChoice | None = None, *, seconds: float = SECONDS
) -> Film:
    """Film one game: a replay file, or a new game of a run, a policy file or a world.

    `out` ends in .gif or .mp4 (or in .replay: the game as data). `game` says which new game: its players, its
    outcome, its seed. A film that would last longer than `seconds` is shown faster.
    """
    if not SHORTEST < seconds <= LONGEST:
        raise ConfigError(f"seconds = {seconds!r}: expected a number above {SHORTEST:g}, at most {LONGEST:g}")
    target, wanted = output_file(Path(out)), game or GameChoice()
    if Path(source).suffix == replay_files.SUFFIX:
        if wanted.players or wanted.choose or wanted.greedy:
            raise ConfigError(f"{source} is one recorded game: --players, --choose and --greedy have no "
                              "effect")
        recorded = replay_files.read(Path(source))
    else:
        recorded = new_game(source, wanted)
    return write(recorded, target, seconds)


def replay(
    source: Path | str, game: GameChoice | None = None, *, out: Path | str | None = None,
    verify: bool = False, seconds: float = SECONDS, log: Log = silent,
) -> Film | Replays:  # fmt: skip
    """Show, verify or film recorded games: of a replay file, or of the folder replays/ of a run.

    `game` chooses one by its outcome; with players, a new game is played and recorded. `out` ends in .replay,
    .gif or .mp4. With `verify` the rules are stepped through every game again; ConfigError where one byte
    differs.
    """
    target, wanted = None if out is None else output_file(Path(out)), game or GameChoice()
    if wanted.players:
        if target is None:
            raise ConfigError("--players plays a new game: expected --out FILE, which ends in "
                              + ", ".join(FORMATS))
        files, recordings = [target], [new_game(source, wanted)]
    else:
        files = stored_files(source)
        recordings = [replay_files.read(file) for file in files]
        if wanted.choice is not None:
            chosen = wanted.choice.select(recordings[::-1])  # the newest first
            files, recordings = [files[recordings.index(chosen)]], [chosen]
    if verify:
        for number, (file, recorded) in enumerate(zip(files, recordings), 1):
            verified(recorded, file.name)
            if len(files) > 1:
                log(f"{file.name}: {recorded.length} steps, as recorded ({number} of {len(files)})")
    if target is not None:
        return write(recordings[-1], target, seconds)
    return Replays(files, recordings, len(recordings) if verify else 0)


def verified(game: Replay, name: str) -> None:
    """Step the rules through a replay; ConfigError with the name of its file where a byte differs."""
    try:
        recording.Playback(game).verify()
    except ConfigError as error:
        raise type(error)(f"{name}: {error}") from None


def stored_files(source: Path | str) -> list[Path]:
    """A replay file, or those of a run, oldest first."""
    path = Path(source)
    if path.suffix == replay_files.SUFFIX:
        return [path]
    folder = folder_of(source)
    if not folder.is_dir():
        raise ConfigError(f"{source}: no such run or {replay_files.SUFFIX} file")
    inner = folder / REPLAY_FOLDER
    matches = [REPLAY_FILE.fullmatch(file.name) for file in inner.iterdir()] if inner.is_dir() else []
    ordered = sorted((int(match[1]), int(match[2]), match[0]) for match in matches if match)
    if not ordered:
        raise ConfigError(f"{folder} has no stored replay; --players A,B --out FILE records a new game")
    return [inner / name for _, _, name in ordered]


# --- new games --------------------------------------------------------------------------------------------


def new_game(source: Path | str, wanted: GameChoice) -> Replay:
    """Play games of a run, a policy file or a world until one ends as wanted."""
    check_integer("seed", wanted.seed, 0, MOST_SEED)
    check_integer("games", wanted.games, 1, MOST_GAMES)
    choice = wanted.choice
    table = seat_players(source, wanted)
    try:
        first = 0
        played: list[Replay] = []
        while first < (wanted.games if choice else 1):
            count = min(BATCH, wanted.games - first) if choice else 1
            played += table.record(count, first, wanted.seed)
            first += count
            if choice and choice.verb not in ("shortest", "longest") and any(map(choice.matches, played)):
                break
            if choice:
                PROGRESS.report(first / wanted.games, f"{first} of {wanted.games} games played")
        return choice.select(played) if choice else played[0]
    finally:
        for player in table.players:
            if isinstance(player, SubprocessPlayer):
                player.close()


@dataclass(frozen=True)
class SeatedTable:
    """Players by seat, the world's name and settings, and a builder of its worlds."""

    world: str
    rules: Any
    make: Callable[[int, int, int], World]
    players: Sequence[Player]
    step: int | None

    def record(self, games: int, first: int, seed: int) -> list[Replay]:
        match = recording.Match(world=self.world, config=self.rules, seed=SEED_OFFSET + seed, step=self.step)
        return recording.record(self.make(games, first, SEED_OFFSET + seed), self.players, match)


def seat_players(source: Path | str, wanted: GameChoice) -> SeatedTable:
    """The players of a run or policy file, or those of `wanted.players` under its rules or a world's."""
    word = world_name(str(source))
    if word in registry.names() or registry.is_file(word):
        if not wanted.players:
            raise ConfigError(f"{word} is a world: expected --players with a name for each seat")
        world, step = registry.typed_name(word), None
        rules = match_rules(wanted.players, world, {})
        game = registry.find(world)
        make: Callable[[int, int, int], World] = partial(game.make, rules)
    else:
        folder = folder_of(source)
        if wanted.players:
            trained = api.load(folder)
        else:
            trained, _ = deployed(folder, wanted.greedy)
        world, rules, step = trained.config.game, trained.config.world, trained.step
        game, make = registry.find(world), api.world_builder(trained.config, trained.curriculum)
    spec = game.spec(rules)
    roles = [spec.role_of(seat).name for seat in range(spec.seats)]
    if not wanted.players:
        return SeatedTable(world, rules, make, [trained.policies[role] for role in roles], step)
    names = names_by_seat(list(wanted.players), roles)
    players = [find_player(name, world, rules, role) for name, role in zip(names, roles)]
    for player in players:
        if isinstance(player, GreedyOption):
            player.greedy = wanted.greedy
    return SeatedTable(world, rules, make, players, step)


def names_by_seat(names: list[str], roles: list[str]) -> list[str]:
    """A name for each seat, from names for each seat or for each role."""
    different = list(dict.fromkeys(roles))
    if len(names) == len(roles):
        return names
    if len(names) == len(different):
        return [names[different.index(role)] for role in roles]
    raise ConfigError(f"--players = {','.join(names)}: expected {len(roles)} names, for {', '.join(roles)}")


# --- files ------------------------------------------------------------------------------------------------


def output_file(out: Path) -> Path:
    """The file to write; ConfigError where it cannot be written or encoded."""
    if out.suffix not in FORMATS or not out.parent.is_dir() or out.is_dir():
        raise ConfigError(f"--out = {str(out)!r}: expected a name that ends in .gif, .mp4 or .replay, in a "
                          "folder that exists")
    if out.suffix == ".mp4" and not mp4.encoder():
        raise ConfigError(mp4.NONE)
    return out


def write(game: Replay, target: Path, seconds: float) -> Film:
    """Write a replay as data or as a film."""
    made = match_film.MatchFilm(game, seconds)
    if target.suffix == replay_files.SUFFIX:
        replay_files.write(target, game)
        return Film(target, made.caption)
    data, problem = (made.gif(), "") if target.suffix == ".gif" else made.mp4()
    if not data:
        raise ConfigError(problem)
    atomic_files.replace_file(target, data)
    return Film(target, made.caption)
