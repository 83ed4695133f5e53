"""The role schedule: phases by number, by a slow reference, and in real runs that are stopped and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import toys
from support.schedules import ROLES, run_through
from support.stop_and_resume import stop_and_go_on
from support.trainers import resume_run

from rematch import api
from rematch.core import config as settings
from rematch.core.config import validate
from rematch.core.errors import ConfigError
from rematch.core.run_config import Config
from rematch.rehearsal.compare import differences, event_log
from rematch.rehearsal.trial import Recorder, play
from rematch.reporting.status import status
from rematch.selfplay.league import League
from rematch.selfplay.role_schedule import Phase, RoleSchedule, Schedule, ScheduleConfig
from rematch.storage.run_folder import Run
from rematch.training.components import evaluator
from rematch.training.loop import train
from rematch.training.trainer import Trainer
from rematch.worlds import registry

# --- by number ----------------------------------------------------------------------------------------------


def test_simultaneous_schedule_trains_all_roles_always() -> None:
    schedule = Schedule(ScheduleConfig(), ROLES, 100)
    assert all(phase.roles == ROLES for phase in run_through(schedule, 20))
    assert not any(schedule.phase_ended(i) or schedule.finished(i) for i in range(1, 50))


def walk(config: ScheduleConfig, roles: tuple[str, ...], steps: int, count: int) -> list[tuple[int, str]]:
    """(number, role that learns) of `count` iterations, computed step by step."""
    phases, number, until, learns = [], 0, config.warmup_steps, roles[-1]
    for iteration in range(count):
        while iteration * steps >= until:  # it starts at or after the end of the phase
            number, learns = number + 1, roles[number % len(roles)]
            wanted = config.phase_steps if config.kind == "alternating" else config.micro_phase_steps
            if (number - 1) // len(roles) < len(config.short_phases):
                wanted = min(wanted, config.short_phases[(number - 1) // len(roles)])
            wanted = max(steps, wanted)
            until += wanted if learns != roles[-1] else max(steps, round(wanted * config.last_multiplier))
        phases.append((number, learns))
    return phases


@given(
    st.sampled_from(("alternating", "micro")), st.integers(0, 60), st.integers(1, 40), st.integers(1, 25),
    st.integers(2, 4), st.lists(st.integers(1, 50), max_size=3), st.sampled_from((0.5, 1.0, 2.5)),
)  # fmt: skip
def test_phases_equal_the_slow_reference(
    kind: str, cold: int, length: int, steps: int, seats: int, warmup: list[int], longer: float
) -> None:
    roles = tuple(f"role {i}" for i in range(seats))
    config = ScheduleConfig(
        kind=kind, warmup_steps=cold, phase_steps=length, micro_phase_steps=length,
        short_phases=tuple(warmup), last_multiplier=longer,
    )  # fmt: skip
    walked, phases = walk(config, roles, steps, 40), run_through(Schedule(config, roles, steps), 40)
    assert [(phase.number, *phase.roles) for phase in phases] == walked
    assert all(phase.first <= i < phase.last for i, phase in enumerate(phases))
    numbers = [number for number, _ in walked]
    assert sorted(set(numbers)) == list(range(numbers[0], numbers[-1] + 1))  # none is passed over
    schedule = Schedule(config, roles, steps)
    for i in range(1, 40):
        schedule.advance(i - 1)
        ends = numbers[i] != numbers[i - 1]
        assert schedule.phase_ended(i) == (ends and (kind == "alternating" or numbers[i - 1] == 0))


@given(
    st.integers(0, 60), st.integers(1, 40), st.integers(1, 25), st.integers(1, 9),
    st.lists(st.integers(1, 50), max_size=3),
)  # fmt: skip
def test_max_phases_ends_with_the_last_phase(
    cold: int, length: int, steps: int, most: int, warmup: list[int]
) -> None:
    config = ScheduleConfig(
        kind="alternating", warmup_steps=cold, phase_steps=length, max_phases=most,
        short_phases=tuple(warmup),
    )  # fmt: skip
    count = config.iterations(2, steps)
    assert count is not None
    schedule = Schedule(config, ROLES, steps)
    ended = []
    for iteration in range(count + 1):
        schedule.advance(iteration)
        ended.append(schedule.finished(iteration + 1))
    assert ended.index(True) == count - 1


def test_micro_phases_are_one_rollout_by_default() -> None:
    for asked, rollouts in ((0, 1), (99, 1), (100, 1), (200, 2), (201, 3)):
        config = ScheduleConfig(kind="micro", micro_phase_steps=asked, warmup_steps=0)
        run = [phase.number for phase in run_through(Schedule(config, ROLES, 100), 12)]
        assert max(run.count(number) for number in run) == rollouts, asked


def test_short_phases_of_document_002() -> None:
    """Document 002, fix 2: S1-S2 100K, S3-S4 200K, S5-S6 300K, then the full 500K; with 4 x 512 steps."""
    config = ScheduleConfig(
        kind="alternating", warmup_steps=0, phase_steps=500_000, short_phases=(100_000, 200_000, 300_000)
    )
    phases = run_through(Schedule(config, ROLES, 2048), 1500)
    lasts = {phase.number: phase.last for phase in phases}
    ends = [100_000, 200_000, 400_000, 600_000, 900_000, 1_200_000, 1_700_000]
    assert [lasts[k + 1] for k in range(7)] == [-(-end // 2048) for end in ends]


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def toy_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys of tests/support/toys.py beside the real worlds."""
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: toys.TOYS[name] if name in toys.TOYS else find(name))


@pytest.mark.parametrize(
    ("game", "changes", "expected"),
    [
        ("sticks", {"kind": "alternating"},
         "roles learn in turn, the world has one role; expected simultaneous"),
        ("sticks", {"kind": "micro"}, "roles learn in turn, the world has one role; expected simultaneous"),
        ("sticks", {"convergence_consecutive": 2}, "a gap is between two roles, and the world has one role"),
        ("matching", {"kind": "alternating", "warmup_opponent": "haeds"},
         "expected a scripted matcher: heads, tails, random; nearest: heads"),
        ("matching", {"kind": "turns"}, "kind = 'turns': expected one of simultaneous, alternating, micro"),
        ("matching", {"kind": "alternating", "phase_steps": 0}, "phase_steps = 0: expected"),
    ],
)  # fmt: skip
def test_schedule_that_does_not_fit_is_one_line(game: str, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings.replace(api.default(game), {f"schedule.{key}": value for key, value in changes.items()})
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    assert "schedule" in str(caught.value)


def test_schedule_settings_without_effect_are_named() -> None:
    validate(ScheduleConfig(kind="micro", warmup_opponent="anybody"))  # only a world can say who there is
    config = settings.replace(api.default("matching"), {"schedule.kind": "micro"})
    for key in ("phase_steps", "max_phases", "eta"):
        with pytest.raises(ConfigError, match=f"schedule.{key} = .* has no effect"):
            settings.refuse_inert(config, [f"schedule.{key}"], "test")
    settings.refuse_inert(config, ["schedule.warmup_opponent", "schedule.micro_phase_steps"], "test")


# --- in real runs -------------------------------------------------------------------------------------------

GAMES, STEPS = 24, 8
PER = GAMES * STEPS


def small(kind: str, **changes: Any) -> Config:
    """Matching pennies, twelve iterations: a warm-up of two, then phases of three, or of one."""
    tiny: dict[str, Any] = {
        "threads": 1, "games": GAMES, "steps": STEPS, "total_steps": 12 * PER, "save_every": 2,
        "network.hidden": (8,), "ppo.minibatch_size": 64, "ppo.epochs": 1, "evaluation.every": 100,
        "evaluation.games": 8, "league.opponent_share": 0.5, "league.snapshot_every": 2, "league.slots": 2,
        "league.rotate": 1, "schedule.kind": kind, "schedule.warmup_steps": 2 * PER,
        "schedule.phase_steps": 3 * PER, "world.rounds": 3,
    }
    tiny |= {key.replace("__", "."): value for key, value in changes.items()}
    return settings.replace(api.default("matching"), tiny)


Kind = TypeVar("Kind")


class Watch(Recorder):
    """Records the learning roles, the next seating and the deciding players of every iteration."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.weights = [self.current()]
        self.seated: list[Any] = []
        self.deciding: list[Any] = []
        self.lines: list[str] = []
        self.played: list[Phase] = []

    def current(self) -> dict[str, bytes]:
        return {role: policy.weights.tobytes() for role, policy in self.trainer.agents.players.items()}

    def line(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, step: int, rate: float, metrics: dict[str, Any]) -> None:
        super().progress(step, rate, metrics)
        self.played.append(self.trainer.clock.phase)
        self.weights.append(self.current())
        self.seated.append(self.trainer.world.next.slot.copy())
        self.deciding.append(self.trainer.setup.collector.rollout["matcher"].slot.copy())


def watched(config: Config, folder: Path) -> Watch:
    trainer = Trainer(config)
    watch = Watch(trainer)
    with Run.create(folder, settings.to_yaml(config)) as run:
        trainer.bind(run, watch)
        trainer.start()
        train(trainer, lambda: False)
    return watch


def part(watch: Watch, kind: type[Kind]) -> Kind:
    """A component of the run."""
    component = watch.trainer.setup.get(kind)
    assert component is not None
    return component


@pytest.mark.parametrize("kind", ["alternating", "micro"])
def test_one_role_learns_and_opponents_have_the_other_seats(kind: str, tmp_path: Path) -> None:
    watch = watched(small(kind, games=200, total_steps=12 * 200 * STEPS, schedule__warmup_steps=3200,
                          schedule__phase_steps=4800), tmp_path / "run")
    roles = ["matcher", "hider"]
    cold = part(watch, RoleSchedule).slots["matcher"]
    assert [phase.number for phase in watch.played[:3]] == [0, 0, 1]
    shares = []
    for i, slots in enumerate(watch.seated):
        (learns,) = watch.played[i].roles
        changed = {role for role in roles if watch.weights[i][role] != watch.weights[i + 1][role]}
        assert changed <= {learns}, (i, learns)
        own, other = slots[:, roles.index(learns)], slots[:, 1 - roles.index(learns)]
        assert (own == 0).all(), i
        if i < 2:
            assert (other == cold).all() and learns == "hider"
        else:
            assert not (other == cold).any()
            shares.append((other > 0).mean())
    assert (watch.deciding[0] == cold).all() and (watch.deciding[1] == cold).all()  # from the first step
    # The first snapshots came with iteration 2, of the hider; by 6 there are some of both.
    assert np.mean(shares[4:]) == pytest.approx(0.5, abs=0.1), shares
    # Games of three rounds that began in S0 are played to their end by those who began them.
    bots = {name: count for counts in watch.record.decisions.values() for name, count in counts.items()
            if name and "@" not in name}  # fmt: skip
    assert set(bots) == {"random"} and 2 * 200 * STEPS <= bots["random"] < (2 * STEPS + 3) * 200
    assert set(watch.record.phases.values()) == set(roles)


def test_role_that_does_not_learn_joins_the_pool_once(tmp_path: Path) -> None:
    """alternate, phases of three: a role that did not learn since is in the pool already."""
    watched(small("alternating", league__snapshot_every=1, league__size=100), tmp_path / "run")
    lines = (tmp_path / "run" / "train.log").read_text().splitlines()
    joined = [line.split()[1] for line in lines if line.startswith("Pool:")]
    phases = [("hider", 0, 2), ("matcher", 2, 5), ("hider", 5, 8), ("matcher", 8, 11), ("hider", 11, 12)]
    assert joined == [f"{role}@{i + 1}" for role, first, last in phases for i in range(first, last)]
    begun = [line for line in lines if line.startswith("Phase")]
    assert begun[:2] == ["Phase S0: hider learns against random, from step 0",
                         "Phase S1: matcher learns, from step 384"]
    assert [line.split()[1] for line in begun] == ["S0:", "S1:", "S2:", "S3:", "S4:"]


def test_both_roles_join_the_pool_in_micro_phases(tmp_path: Path) -> None:
    """micro: every second iteration has the same learner, but both learned since the snapshots before."""
    watch = watched(small("micro"), tmp_path / "run")
    assert {role: pool.seen for role, pool in part(watch, League).matchmaker.pools.items()} == {
        "matcher": 5, "hider": 6}
    output = [text for text in watch.lines if "micro" in text]
    log = (tmp_path / "run" / "train.log").read_text().splitlines()
    assert output == [text for text in log if "micro" in text]
    assert output == ["Phase S1: matcher learns, from step 384; micro 1, Pool: 0 matcher, 1 hider; "
                    "matcher and hider learn in turn"]


def test_history_has_the_phase(tmp_path: Path) -> None:
    rows = watched(small("alternating"), tmp_path / "a").evaluations
    assert [(row["iteration"], row["phase"], row["role"]) for row in rows] == [
        (2, "S0", "hider"), (5, "S1", "matcher"), (8, "S2", "hider"), (11, "S3", "matcher"),
        (12, "S4", "hider")]
    rows = watched(small("micro", evaluation__every=5), tmp_path / "m").evaluations
    assert [(row["iteration"], row["phase"]) for row in rows] == [
        (2, "S0"), (5, "S3"), (10, "S8"), (12, "S10")]
    rows = watched(small("simultaneous"), tmp_path / "t").evaluations
    assert [(row["phase"], row["role"]) for row in rows] == [(12, "both")]


def test_run_ends_after_its_phases(tmp_path: Path) -> None:
    watch = watched(small("alternating", schedule__max_phases=2), tmp_path / "run")
    assert watch.trainer.clock.iteration == 8 == watch.trainer.config.iterations and watch.trainer.clock.done
    assert status_of(tmp_path / "run")["iterations"] == 8


def test_without_warmup_the_first_role_learns_first(tmp_path: Path) -> None:
    watch = watched(small("micro", schedule__warmup_steps=0), tmp_path / "run")
    assert part(watch, RoleSchedule).slots == {} and not any(
        "random" in d for d in watch.record.decisions.values()
    )
    assert [phase.roles[0] for phase in watch.played[:3]] == ["matcher", "hider", "matcher"]


ALL = {"ppo__magnet_weight": 0.1, "ppo__entropy_weight": 0.1, "league__matchmaking": "pfsp",
       "league__bots": ("heads",)}


@pytest.mark.parametrize("kind", ["simultaneous", "alternating", "micro"])
@pytest.mark.parametrize("at", [1, 3, 7])
def test_stopped_run_resumes_to_the_same_bytes(kind: str, at: int, tmp_path: Path) -> None:
    config = small(kind, **ALL, schedule__convergence_consecutive=99, schedule__eta=1.0)
    play(config, tmp_path / "whole")
    stop_and_go_on(config, tmp_path / "cut", at)
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


def test_run_resumed_before_its_first_iteration_announces_its_phase(tmp_path: Path) -> None:
    """`train --from` saves before the first iteration: a run that is killed then must log the same lines."""
    config = small("alternating")
    play(config, tmp_path / "whole")
    trainer = Trainer(config)
    with Run.create(tmp_path / "cut", settings.to_yaml(config)) as run:
        trainer.bind(run, Watch(trainer))
        trainer.save(temporary=True)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.parametrize("kind", ["alternating", "micro"])
def test_threads_never_change_a_schedule(kind: str) -> None:
    assert len({event_log(small(kind, **ALL, games=37, threads=threads)) for threads in (1, 2, 3)}) == 1


# --- convergence --------------------------------------------------------------------------------------------


def converging(**changes: Any) -> Config:
    """Any gap below 1 counts as balanced: twice in a row is enough."""
    return small("micro", evaluation__every=2, evaluation__games=40, evaluation__alarm_swing=1.0,
                 schedule__convergence_consecutive=2, schedule__eta=0.9999, **changes)


def status_of(folder: Path) -> dict[str, Any]:
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "report.html").touch()
    return status(folder)


def test_balanced_pair_ends_the_run_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "attach_best_bots", lambda row, best: None)
    watch = watched(converging(), tmp_path / "run")
    rows, clock = watch.evaluations, watch.trainer.clock
    assert [row["phase"] for row in rows] == ["S0", "S2", "S4"]
    assert [row["balanced"] for row in rows] == [0, 1, 2]  # the cold start's own balance is none
    assert clock.iteration == 6 and clock.done and clock.end_reason == "converged"
    assert rows[-1]["verdict"].startswith("converged: 2 evaluations in a row with a small NE gap, the last")
    assert f"[{rows[-1]['gap_low']:.3f}, {rows[-1]['gap_high']:.3f}] in 40 games" in rows[-1]["verdict"]
    facts = status_of(tmp_path / "run")
    assert facts["state"] == "complete" and facts["ended"] == "converged" and facts["exit"] == 0
    assert facts["lines"][1].startswith("complete (converged) at iteration 6 of 12")
    assert any(line.startswith("verdict: CONVERGED: ") for line in facts["lines"])
    with Run.open(tmp_path / "run", write=False) as run:
        checkpoint = run.load()
    again = Trainer(converging())
    assert checkpoint is not None and checkpoint.manifest.keep == "recent"
    again.load_state_dict(checkpoint.parts)
    assert again.clock.done  # there is nothing left to resume


def test_pair_that_loses_to_bots_is_weak_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def much_better(row: dict[str, Any], best: Any) -> None:
        for entry in row["table"]:
            entry |= {"best_bot": "ace", "best_bot_score": 1.0, "best_bot_low": 0.9999, "best_bot_high": 1.0}

    monkeypatch.setattr(evaluator, "attach_best_bots", much_better)
    watch = watched(converging(), tmp_path / "run")
    assert watch.trainer.clock.iteration == 12 and not watch.trainer.clock.end_reason
    assert [row.get("converged") for row in watch.evaluations] == [None, None, False, False, False, False]
    assert all("weak: " in row["verdict"] for row in watch.evaluations[2:])


def test_run_with_an_alarm_has_not_converged(tmp_path: Path) -> None:
    config = settings.replace(converging(), {"evaluation.alarm_swing": 0.0})
    watch = watched(config, tmp_path / "run")
    assert watch.trainer.clock.iteration == 12 and not watch.trainer.clock.end_reason
    assert watch.evaluations[-1]["verdict"].startswith("collapsed: ")


def test_upper_bound_of_the_gap_decides_convergence(tmp_path: Path) -> None:
    """Eight games never show that a gap is below 0.3, whatever the gap is."""
    config = settings.replace(converging(), {"schedule.eta": 0.3, "evaluation.games": 8})
    watch = watched(config, tmp_path / "run")
    assert watch.trainer.clock.iteration == 12 and {row["balanced"] for row in watch.evaluations} == {0}
    assert min(row["gap"] for row in watch.evaluations) < 0.3
