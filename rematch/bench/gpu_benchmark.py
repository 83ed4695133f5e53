"""`rematch bench WORLD --device cuda`: training on the GPU beside another library on the same card."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rematch.bench import rematch_subject
from rematch.bench.timing import (
    REPETITIONS,
    Measurement,
    Subject,
    announce,
    best,
    load_average,
    measure_in_turns,
    ratio,
)
from rematch.core.errors import ConfigError, NotInstalled
from rematch.core.system import cuda
from rematch.core.system.progress import PROGRESS
from rematch.selfplay.league import League
from rematch.training.device import check_device
from rematch.training.setup import RunSetup
from rematch.worlds import registry

SMALL_MINIBATCH, LARGE_MINIBATCH = 8192, 65_536
# (games, steps, minibatch): the recipe's own size, and sizes at which the card has more to do
SIZES = ((2048, 32, SMALL_MINIBATCH), (16_384, 32, SMALL_MINIBATCH), (131_072, 16, SMALL_MINIBATCH),
         (131_072, 16, LARGE_MINIBATCH))  # fmt: skip
PEER_GAMES = (1024, 8192)
# World whose learner is compiled kernels -> learner steps/s to reach and to aim at, by minibatch
WANTED = {"pursuit": {SMALL_MINIBATCH: (100e6, 250e6), LARGE_MINIBATCH: (400e6, 1e9)}}
LEARNING_GAMES = 200
MOST_ITERATIONS = 200  # before the measurement, in which games end
PUFFERLIB = ("not measured by this command, because each of its versions has another program; docs/results/"
             "speed.md has what was measured of its own Breakout on an H200")


class GpuTraining(rematch_subject.Training):
    """Iterations on the GPU; a repetition ends when the GPU has done all its work."""

    device = "cuda"

    def _fill_league(self, league: League) -> None:
        """Fills the opponent pools; then games end twice in the mean, so that opponents are seated."""
        trainer, config = self.trainer, self.trainer.config
        trainer.start()
        for number in range(rematch_subject.SNAPSHOTS):
            self.iterate()
            league.matchmaker.snapshot(number * config.league.snapshot_every)
        ends = trainer.clock.finished_games + 2 * config.games
        for _ in range(MOST_ITERATIONS):
            if trainer.clock.finished_games >= ends:
                break
            self.iterate()
        cuda.synchronize()

    def run(self, seconds: float) -> int:
        steps = super().run(seconds)
        cuda.synchronize()
        return steps


def check(world: str) -> None:
    """ConfigError where training of this world cannot be measured on the GPU of this machine."""
    settings = registry.find(world).benchmark
    if settings is not None and (settings.measure is not None or settings.card_game is not None):
        raise ConfigError(f"bench {world} --device cuda: this world is measured on the processor only; "
                          "expected pursuit, lattice or --device cpu")  # fmt: skip
    check_device(RunSetup(_config(world, SIZES[0])))


def _config(world: str, size: tuple[int, int, int]) -> Any:
    games, steps, minibatch = size
    changes = {"device": "cuda", "games": games, "steps": steps, "ppo.minibatch_size": minibatch}
    return rematch_subject.configure(world, 1, rematch_subject.PINNED | changes)


def measure(world: str, seconds: float) -> dict[str, Any]:
    """All values of the report but those of the machine, as JSON-compatible data."""
    import torch

    check(world)
    load_before = load_average()
    own: list[Subject] = []
    for size in SIZES:
        own.append(GpuTraining("rematch", _config(world, size)))
    role = next(iter(registry.find(world).bots))
    opponent = rematch_subject.opposing_bot(world, role)
    peers, missing = peer_subjects(world, (role, opponent))
    with PROGRESS.part(0.0, 0.8):
        measured = measure_in_turns([*own, *peers], seconds / REPETITIONS)
    for training in own:
        assert isinstance(training, GpuTraining)
        training.settings["rivals_share"] = training.opponent_seat_share()
    games = max(2, min(LEARNING_GAMES, round(LEARNING_GAMES * seconds)))
    announce(f"whether the timed training learns: {1.5 * seconds:g} s of training, then {games} games "
             "against each bot, several times")  # fmt: skip
    with PROGRESS.part(0.8, 1.0):
        learning = rematch_subject.learning(world, 1, 1.5 * seconds, games, GpuTraining)
    return {
        "world": world, "device": "cuda", "card": torch.cuda.get_device_name(), "seconds": seconds,
        "repetitions": REPETITIONS, "peer": {"name": "stable-baselines3", "missing": missing},
        "not_measured": [f"{puffer()}: {PUFFERLIB}"],
        "measurements": [m.row() for m in measured], "learning": learning,
        "targets": targets(world, measured[: len(own)], measured[len(own) :]),
        "load": {"before": load_before, "after": load_average()},
    }  # fmt: skip


def puffer() -> str:
    """PufferLib, with its version where it is installed."""
    try:
        return f"PufferLib {version('pufferlib')}"
    except PackageNotFoundError:
        return "PufferLib (not installed)"


def peer_subjects(world: str, players: tuple[str, str]) -> tuple[list[Subject], str | None]:
    """Stable-Baselines3 with its networks on the same card; why there is none."""
    from rematch.worlds import cuda_world

    try:
        from rematch.bench.sb3_subject import Sb3Training
    except (ImportError, ConfigError):
        return [], f"{NotInstalled('Stable-Baselines3', 'stable-baselines3')}; only Rematch is measured"
    peers: list[Subject] = []
    for games in PEER_GAMES:
        changes = rematch_subject.PINNED | {"games": games}
        config = rematch_subject.configure(world, 1, changes)
        name = "Stable-Baselines3, shared trunk, its networks on the GPU"
        peers.append(Sb3Training(name, config, 1, players, device=str(cuda_world.DEVICE)))
    return peers, None


def targets(
    world: str, own: Sequence[Measurement], peers: Sequence[Measurement]
) -> list[dict[str, Any]]:  # fmt: skip
    """The targets and whether they were met."""
    from rematch.bench.run import target

    results = []
    for minibatch, (minimum, aim) in WANTED.get(world, {}).items():
        rates = [m.median for m in own if m.subject.settings["batch"] == minibatch]
        value = max(rates, default=None)
        results.append(target(f"learner steps/s with minibatches of {minibatch}", value, minimum, aim))
    name = "over Stable-Baselines3's best on the same card, minibatches of 8192"
    if not peers:
        return [*results, target(name, None, 2.0)]
    matched = [m for m in own if m.subject.settings["batch"] == peers[0].subject.settings["batch"]]
    speedup = ratio(name, best(matched), best(peers))
    return [*results, target(name, speedup["value"], 2.0) | {"ratio": speedup}]
