"""The curriculum of starts: its ladders, its judgement by intervals, and the starts that live worlds play."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stop_and_resume import stop_and_go_on

from rematch import api
from rematch.core import config as settings
from rematch.core.arrays import Floats
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.curriculum import gap_criterion
from rematch.curriculum.levels import CurriculumConfig, LevelProgress, Levels, build_levels, too_few_games
from rematch.evaluation.match import wilson
from rematch.rehearsal.compare import differences
from rematch.rehearsal.trial import Recorder, play
from rematch.reporting.status import status
from rematch.reporting.text import scoreboard_lines
from rematch.selfplay import role_schedule
from rematch.storage.run_folder import Run
from rematch.training.components.evaluator import Evaluator
from rematch.training.loop import train
from rematch.training.response_training import FrozenAgents
from rematch.training.trainer import Trainer
from rematch.verbs.evaluate import evaluate
from rematch.worlds import registry

N = 1000  # games of an evaluation


def climbing(game: str = "pursuit", **changes: Any) -> tuple[LevelProgress, Any]:
    config = CurriculumConfig(**{"kind": "smooth"} | changes)
    module = registry.find(game)
    world = module.make(module.Config(), 4, 0, 0)
    levels = build_levels(config, module, module.Config(), world.spec)
    return LevelProgress(config, levels, world.spec, world.next.stage[0]), world


def row(captured: int, games: int = N) -> dict[str, Any]:
    """An evaluation in which the pursuer won so many games."""
    rates = {}
    for role, won in (("pursuer", captured), ("evader", games - captured)):
        low, high = wilson(won, games)
        rates[role] = {"rate": won / games, "low": low, "high": high, "games": games}
    ends = [abs(2 * rates["pursuer"][end] - 1) for end in ("low", "high")]
    inside = rates["pursuer"]["low"] <= 0.5 <= rates["pursuer"]["high"]
    gap_low = 0.0 if inside else min(ends)
    gap = {"gap": abs(2 * captured / games - 1), "gap_low": gap_low, "gap_high": max(ends)}
    return {"rates": rates} | gap


# --- ladders ------------------------------------------------------------------------------------------------


def starts(curriculum: LevelProgress) -> list[tuple[float, ...]]:
    return [tuple(curriculum.level_stage(level).tolist()) for level in range(len(curriculum.levels))]


def test_the_discrete_levels_are_the_documents_six() -> None:
    module = registry.find("pursuit")
    changes = {"world.n_obstacles_max": 3, "curriculum.kind": "discrete"}
    config = settings.replace(api.default("pursuit"), changes)
    spec = module.make(config.world, 1, 0, 0).spec
    levels = build_levels(config.curriculum, module, config.world, spec)
    curriculum = LevelProgress(config.curriculum, levels, spec, np.zeros(4, np.float32))
    assert starts(curriculum) == [(2, 5, 0, 0), (5, 15, 0, 0), (2, 5, 3, 3), (5, 8, 3, 3), (5, 12, 3, 3),
                                  (2, 15, 3, 3)]  # fmt: skip


@given(st.floats(0.1, 12), st.integers(0, 2))
def test_the_smooth_range_grows_to_fifteen_metres_never_below_the_floor(step: float, floor: int) -> None:
    curriculum, _ = climbing(increment=step, min_obstacles=floor)
    levels = starts(curriculum)
    tops = [far for _, far, _, _ in levels]
    assert tops[0] == 5 and tops[-1] == 15 and all(near == 2 for near, *_ in levels)
    assert np.allclose(np.diff(tops[:-1]), step, atol=1e-4) and 0 < tops[-1] - tops[-2] <= step + 1e-4
    assert [fewest for *_, fewest, _ in levels] == [2 if top >= 8 else floor for top in tops]
    assert all(fewest == most for *_, fewest, most in levels)


def test_the_lattice_has_levels_of_its_own() -> None:
    for kind in ("discrete", "smooth"):
        curriculum, world = climbing("lattice", kind=kind, increment=1.0)
        tops = [level.start["max_distance"] for level in curriculum.levels]
        n = world.config.n
        assert tops == sorted(tops) and n / 4 < tops[0] <= n / 2
        assert tops[-1] == pytest.approx((n - 1) * 2**0.5)
        for level in range(len(tops)):  # all of them can be played
            world.set_stage(np.arange(4), np.tile(curriculum.level_stage(level), (4, 1)))


@pytest.mark.parametrize(
    ("game", "changes", "expected"),
    [
        ("gymnasium", {}, "has no levels; expected none"),
        ("pursuit", {"curriculum.min_obstacles": 3}, "min_obstacles = 3: expected at most 2"),
        ("pursuit", {"curriculum.kind": "discrete"}, "n_obstacles_max = 2: the discrete levels have up to 3"),
        ("pursuit", {"world.min_init_distance": 4.0}, "world.min_init_distance = 4: has no effect"),
        ("lattice", {"curriculum.min_obstacles": 1}, "a lattice has none"),
        ("lattice", {"world.max_distance": 3.0}, "world.max_distance = 3: has no effect"),
        ("pursuit", {"curriculum.kind": "none", "schedule.kind": "alternating", "schedule.last_first": True},
         "schedule.last_first = True: without a curriculum there is no new level"),
        ("pursuit", {"curriculum.kind": "none", "schedule.kind": "micro", "schedule.level_warmup_steps": 9},
         "schedule.level_warmup_steps = 9: without a curriculum there is no new level"),
    ],
)  # fmt: skip
def test_what_cannot_be_climbed_is_one_line(game: str, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings.replace(api.default(game), {"curriculum.kind": "smooth"} | changes)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


# --- judgement ----------------------------------------------------------------------------------------------


def test_the_bound_climbs_not_the_point() -> None:
    curriculum, _ = climbing()
    assert curriculum.record_evaluation(row(720)) == (0, "")  # 0.720, but surely only 0.691
    moved, why = curriculum.record_evaluation(row(740))
    assert moved == 1 and curriculum.level == 1
    assert why.startswith("rate 0.740 [0.712, 0.766] of the first role above 0.7") and "n = 1000" in why


def test_an_evader_without_a_chance_holds_the_level() -> None:
    curriculum, _ = climbing(min_escape_rate=0.05)
    assert curriculum.record_evaluation(row(970))[0] == 0 and curriculum.record_evaluation(row(900))[0] == 1


def test_a_small_gap_climbs_when_it_lasts() -> None:
    curriculum, _ = climbing(by="gap", gap_consecutive=3, min_phases=2)
    results = (500, 520, 900, 510, 500, 480, 500, 500, 500)
    moves = [curriculum.record_evaluation(row(won))[0] for won in results]
    assert moves == [0, 0, 0, 0, 0, 1, 0, 0, 1]
    once = climbing(by="gap", gap_consecutive=1)[0]
    assert once.record_evaluation(row(570))[0] == 0  # 0.14, but at most 0.20


def test_the_point_rule_compares_the_gap_itself() -> None:
    """As in the earlier project: |SR_P - SR_E| < threshold."""
    curriculum, _ = climbing(by="gap", gap_consecutive=2, gap_rule="point")
    moves = [curriculum.record_evaluation(row(won))[0] for won in (570, 575, 570, 430, 574)]
    assert moves == [0, 0, 0, 1, 0]  # 575 of 1000 is a gap of 0.15, which is not below 0.15


def exact_probability(games: int, threshold: float, rule: str) -> float:
    """Sum of the binomial probabilities of all results that an evaluation accepts."""
    accepted = 0
    for won in range(games + 1):
        result = row(won, games)
        value = result["gap_high"] <= threshold if rule == "bound" else result["gap"] < threshold - 1e-9
        accepted += comb(games, won) if value else 0
    return accepted / 2**games


@pytest.mark.parametrize("rule", ["bound", "point"])
@pytest.mark.parametrize(("games", "threshold"), [(10, 0.8), (100, 0.15), (250, 0.15), (251, 0.3), (80, 1.0),
                                                  (1000, 0.15), (40, 0.0)])  # fmt: skip
def test_probability_of_an_even_pair_is_the_binomial_sum(games: int, threshold: float, rule: str) -> None:
    expected = exact_probability(games, threshold, rule)
    assert gap_criterion.probability(games, threshold, rule) == pytest.approx(expected, abs=1e-9)


def test_an_even_pair_of_250_games_almost_never_climbs_by_the_bound() -> None:
    assert gap_criterion.probability(250, 0.15, "bound") ** 3 == pytest.approx(0.040, abs=5e-4)
    assert gap_criterion.probability(250, 0.15, "point") ** 3 == pytest.approx(0.944, abs=5e-4)


@pytest.mark.parametrize(("threshold", "consecutive"), [(0.15, 2), (0.15, 3), (0.3, 1)])
def test_games_needed_are_the_fewest_that_suffice(threshold: float, consecutive: int) -> None:
    games = gap_criterion.games_needed(threshold, consecutive)
    assert exact_probability(games, threshold, "bound") ** consecutive >= gap_criterion.LIKELY
    assert exact_probability(games - gap_criterion.ROUND, threshold, "bound") ** consecutive < 0.9


def test_probabilities_of_the_page_on_levels_are_computed() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/self_play.md").read_text()
    for threshold, k in ((0.15, 2), (0.15, 3), (0.1, 2), (0.05, 2)):
        settings_of = ((250, "bound"), (1000, "bound"), (250, "point"))
        cells = [f"{gap_criterion.probability(n, threshold, rule) ** k:.2f}" for n, rule in settings_of]
        games = gap_criterion.games_needed(threshold, k)
        assert f"| {threshold:.2f}, {k} | {' | '.join(cells)} | {games} |" in page


@pytest.mark.parametrize(
    ("curriculum", "games"),
    [({"by": "gap", "gap_threshold": 0.1}, 1550), ({"by": "gap"}, 1000), ({"by": "capture"}, 1000),
     ({"by": "gap", "gap_threshold": 0.1, "gap_rule": "point"}, 1000)],
)  # fmt: skip
def test_default_number_of_evaluation_games_follows_the_threshold(
    curriculum: dict[str, Any], games: int, tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps({"game": "pursuit", "curriculum": {"kind": "smooth"} | curriculum}))
    config = api.configure(str(file))
    assert config.evaluation.games == games and too_few_games(config.curriculum, games) == ""
    assert api.configure(str(file), flags=["--evaluation.games", "77"]).evaluation.games == 77


def test_too_few_games_are_a_note_with_both_remedies(tmp_path: Path) -> None:
    config = api.configure("ra2")
    assert config.evaluation.games == 250  # a recipe with a number keeps it
    note = too_few_games(config.curriculum, config.evaluation.games)
    assert note == (
        "note: evaluation.games 250 is small for curriculum.gap_threshold 0.15 with gap_rule bound: a "
        "perfectly even pair meets it 3 times in a row with probability 0.04; --evaluation.games 750 gives "
        "0.9, --curriculum.gap_rule point gives 0.94")
    point = api.configure("ra2", changes={"curriculum.gap_rule": "point"})
    assert too_few_games(point.curriculum, point.evaluation.games) == ""
    few = short_run("pursuit", curriculum__by="gap", total_steps=96 * 6)
    trained = api.train(few, folder=tmp_path / "run")
    log = (trained.folder / "train.log").read_text()
    assert "note: evaluation.games 20 is small for curriculum.gap_threshold 0.15" in log
    assert ", level 1 (2-5 m, 0 obstacles): SR_P" in log


def test_evaluations_on_a_level_are_counted_anew() -> None:
    curriculum, _ = climbing(min_phases=3)
    assert [curriculum.record_evaluation(row(900))[0] for _ in range(7)] == [0, 0, 1, 0, 0, 1, 0]


def test_a_level_is_left_downwards_when_the_last_role_is_lost() -> None:
    curriculum, _ = climbing(min_phases=9)
    curriculum.level = 2
    results = (1000, 1000, 980, 1000, 1000, 1000)
    assert [curriculum.record_evaluation(row(won))[0] for won in results] == [0] * 5 + [-1]
    assert curriculum.level == 1
    low, _ = climbing(min_phases=9)
    assert [low.record_evaluation(row(1000))[0] for _ in range(6)] == [0] * 6  # there is nothing below
    never, _ = climbing(min_phases=9, regress_after=0)
    never.level = 2
    assert [never.record_evaluation(row(1000))[0] for _ in range(6)] == [0] * 6


def test_the_top_is_the_end() -> None:
    curriculum, _ = climbing(increment=10.0)
    assert [curriculum.record_evaluation(row(1000 - 100))[0] for _ in range(3)] == [1, 0, 0]


@given(st.lists(st.integers(0, N), max_size=30), st.sampled_from(("capture", "gap")))
def test_a_level_always_exists_and_the_state_says_all(results: list[int], by: str) -> None:
    one, _ = climbing(by=by, increment=4.0)
    two, _ = climbing(by=by, increment=4.0)
    for won in results:
        before = one.level
        moved, why = one.record_evaluation(row(won))
        assert one.level == before + moved and 0 <= one.level < len(one.levels) and bool(moved) == bool(why)
    two.load_state_dict(one.state_dict())
    second = [two.record_evaluation(row(won)) for won in results]
    assert second == [one.record_evaluation(row(won)) for won in results]


@given(st.integers(1, 200), st.floats(0.001, 1))
def test_mixed_levels_keep_some_games_one_level_lower(games: int, ratio: float) -> None:
    curriculum, _ = climbing(mixed_ratio=ratio)
    assert (curriculum.stage(games) == curriculum.level_stage(0)).all()  # nothing is below the first
    curriculum.level = 3
    stage = curriculum.stage(games)
    below = (stage == curriculum.level_stage(2)).all(1)
    assert below.sum() == max(1, int(games * ratio)) and (stage[~below] == curriculum.level_stage(3)).all()


# --- live worlds --------------------------------------------------------------------------------------------


def distances(game: str, world: Any) -> Floats:
    """[N] between the two robots of each running game."""
    games = world._named
    if game == "lattice":
        cell = games["robot"] // 8
        x, y = cell % world.config.n, cell // world.config.n
        return np.asarray(np.hypot(x[:, 0] - x[:, 1], y[:, 0] - y[:, 1]), np.float32)
    return np.asarray(np.hypot(games["x"][:, 0] - games["x"][:, 1], games["y"][:, 0] - games["y"][:, 1]))


def progress_of(trainer: Trainer) -> LevelProgress:
    levels = trainer.setup.get(Levels)
    assert levels is not None
    return levels.progress


class Ruler(Recorder):
    """Measures every start: the distance of a game that has just begun, with the level of that time."""

    def __init__(self, trainer: Trainer, game: str) -> None:
        super().__init__(trainer)
        self.game, self.starts, self.lines = game, [], []  # type: ignore[var-annotated]

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None:
        super().progress(step, rate, metrics)
        curriculum, world = progress_of(self.trainer), self.trainer.world
        fresh = world.view.ended != 0  # it ended in the last step, so the running game has not moved yet
        stage = np.unique(world.next.stage[fresh], axis=0) if fresh.any() else None
        self.starts.append((curriculum.level, distances(self.game, world)[fresh], stage))

    def line(self, text: str) -> None:
        self.lines.append(text)


def short_run(game: str, **changes: Any) -> Config:
    tiny = {
        "threads": 1, "games": 96, "steps": 6, "total_steps": 96 * 6 * 12, "save_every": 2,
        "network.hidden": (8,), "ppo.minibatch_size": 256, "ppo.epochs": 1, "evaluation.every": 2,
        "evaluation.games": 20, "evaluation.opponents": ("random",), "league.opponent_share": 0.0,
        "curriculum.kind": "smooth", "curriculum.capture_rate": 0.0, "curriculum.increment": 3.0,
    }  # fmt: skip
    tiny |= {"world.horizon": 6} if game == "lattice" else {"world.max_steps": 6}
    return settings.replace(api.default(game), tiny | {k.replace("__", "."): v for k, v in changes.items()})


@pytest.mark.parametrize("game", ["pursuit", "lattice"])
def test_the_distances_that_live_worlds_play_are_those_of_the_level(game: str, tmp_path: Path) -> None:
    """The earlier project's curriculum did not reach live worlds: starts are measured after an advance."""
    trainer = Trainer(short_run(game))
    ruler = Ruler(trainer, game)
    with Run.create(tmp_path / "run", settings.to_yaml(trainer.config)) as run:
        trainer.bind(run, ruler)
        trainer.start()
        train(trainer, lambda: False)
    curriculum, stage = progress_of(trainer), trainer.setup.spec.stage
    assert curriculum.level >= 2
    near, far = (stage.index(name) for name in stage if "_distance" in name)
    seen = set()
    for level, apart, _ in ruler.starts:
        if len(apart):
            low, high = curriculum.level_stage(level)[near], curriculum.level_stage(level)[far]
            assert apart.min() >= low - 1e-4 and apart.max() <= high + 1e-4, (level, apart.min(), apart.max())
            before = curriculum.level_stage(level - 1)[far] if level else 0.0
            assert apart.max() > before or game == "lattice", "games of this level begin further apart"
            seen.add(level)
    assert len(seen) >= 3, "starts of several levels were measured"
    log = (tmp_path / "run" / "train.log").read_text()
    ups = [line for line in log.splitlines() if line.startswith("CURRICULUM up to level")]
    assert len(ups) >= 2 and ups == [line for line in ruler.lines if line.startswith("CURRICULUM")]
    rows = ruler.evaluations
    assert [entry["level"] for entry in rows] == sorted(entry["level"] for entry in rows)
    assert rows[0]["level_name"] == curriculum.levels[0].name
    assert rows[0]["moved"] == 1 and rows[0]["evidence"]


def test_strength_is_measured_on_the_trained_level() -> None:
    trainer = Trainer(short_run("pursuit"))
    curriculum, evaluator = progress_of(trainer), trainer.setup.get(Evaluator)
    assert evaluator is not None
    for level in (0, 2):
        curriculum.level = level
        world = evaluator.scoreboard.make(200, 0, 7)
        low, high = curriculum.level_stage(level)[:2]
        apart = distances("pursuit", world)
        assert low <= apart.min() + 1e-4 and apart.max() <= high + 1e-4


def test_what_is_played_after_training_is_played_on_its_level(tmp_path: Path) -> None:
    """Eval, exploit, payoff matrix, film: the earlier project's evaluations played another world."""
    config = short_run("pursuit")
    seen = play(config, tmp_path / "run").trainer
    trained = api.load(tmp_path / "run")
    assert trained.curriculum is not None
    assert 0 < trained.curriculum.level == progress_of(seen).level
    low, high = trained.curriculum.present_stage[:2]
    assert (low, high) != (config.world.min_init_distance, config.world.max_init_distance)
    frozen = FrozenAgents(config=config, players=trained.policies, iteration=0, level=trained.curriculum)
    for make in (api.world_builder(config, trained.curriculum), frozen.make, seen.setup.make_level):
        apart = distances("pursuit", make(400, 0, 7))
        assert low <= apart.min() + 1e-4 and apart.max() <= high + 1e-4
        assert apart.min() < config.world.min_init_distance
    row = evaluate(tmp_path / "run", against=["random"], games=20)
    assert row["level_name"] == trained.curriculum.name and row["level"] == trained.curriculum.level
    assert f"on level {row['level_name']}" in scoreboard_lines(row)[0]
    summary = status(tmp_path / "run")["lines"]
    assert any(line.rstrip().endswith(progress_of(seen).levels[1].name) for line in summary), summary


@pytest.mark.parametrize("kind", ["simultaneous", "alternating", "micro"])
def test_a_stopped_climb_goes_on_to_the_same_bytes(kind: str, tmp_path: Path) -> None:
    turns: dict[str, Any] = {} if kind == "simultaneous" else {
        "schedule__kind": kind, "schedule__warmup_steps": 96 * 6, "schedule__last_first": True,
        "schedule__level_warmup_steps": 96 * 6,
    }
    if kind == "alternating":
        turns["schedule__phase_steps"] = 96 * 6 * 2
    config = short_run("pursuit", curriculum__mixed_ratio=0.2, **turns)
    play(config, tmp_path / "whole")
    if kind == "alternate":  # two levels in a row: a warm-up follows another one, under the same name
        log = (tmp_path / "whole" / "train.log").read_text()
        assert log.count("Phase S2w: evader learns, from step") == 2
    for at in (1, 4, 7):
        cut = tmp_path / f"cut{at}"
        stop_and_go_on(config, cut, at)
        assert differences(tmp_path / "whole", cut) == []


def test_a_level_that_is_reached_again_is_another_milestone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up, back and up again, a warm start each time: no milestone may stand in the next one's way."""
    moves = iter([1, 1, -1, 1, -1, 1, 1, -1, 1, -1, 1])

    def record_evaluation(curriculum: LevelProgress, row: Any) -> tuple[int, str]:
        by = next(moves, 0)
        curriculum.level += by
        return by, "told to"

    monkeypatch.setattr(LevelProgress, "record_evaluation", record_evaluation)
    config = short_run("pursuit", rollback__checkpoints_back=1, schedule__kind="alternating",
                       evaluation__every=1,
                       schedule__warmup_steps=0, schedule__phase_steps=96 * 6,
                       schedule__level_warmup_steps=96 * 6)
    assert play(config, tmp_path / "run").trainer.clock.iteration == 12
    names = {path.stem for path in (tmp_path / "run" / "policies").glob("*@level-2*.safetensors")}
    assert len(names) >= 4, "level 2 was reached more than once, and both roles were kept each time"


@pytest.mark.parametrize("stays", [True, False])
def test_balanced_pair_on_a_lower_level_has_not_converged(
    stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Document 002's run I stopped as converged on its second level."""
    monkeypatch.setattr(role_schedule, "count_balanced", lambda history, eta: 1)
    monkeypatch.setattr(role_schedule, "below_baseline", lambda evaluation: [])
    config = short_run("pursuit", schedule__convergence_consecutive=1, evaluation__alarm_swing=1.0,
                       curriculum__min_phases=100 if stays else 1, curriculum__increment=10.0)
    trainer = play(config, tmp_path / "run").trainer
    assert progress_of(trainer).at_top != stays
    assert trainer.clock.end_reason == ("" if stays else "converged")
