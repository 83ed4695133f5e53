"""All settings of a run in one dataclass: each part beside the code that reads it, joined and judged here."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from rematch.agents.learners.dqn import DqnConfig, check_dqn
from rematch.agents.learners.expert_iteration import ExpertConfig, check_plies, check_search
from rematch.agents.learners.lookahead import LookaheadConfig, check_network, check_spec
from rematch.agents.learners.ppo import PpoConfig
from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout
from rematch.core.config import knob, part
from rematch.core.errors import ConfigError
from rematch.core.spec import Spec
from rematch.curriculum.levels import CurriculumConfig, ladder
from rematch.curriculum.start_states import START, SwarmConfig, check_swarm
from rematch.evaluation.evaluator import EvaluationConfig, check_rivals
from rematch.exploration.count_bonus import NoveltyConfig
from rematch.exploration.milestone_bonus import MilestonesConfig, check_milestones
from rematch.exploration.rnd import RndConfig
from rematch.exploration.rnd_images import RndScreenConfig
from rematch.selfplay.opponent_pool import LeagueConfig
from rematch.selfplay.role_schedule import ScheduleConfig, check_schedule
from rematch.stability.ewc import EwcConfig, check_ewc
from rematch.stability.rollback import RollbackConfig, check_rollback
from rematch.training.episode_log import WatchConfig, check_watch
from rematch.training.exploiters import check_exploiters
from rematch.worlds import registry


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. `world` is the chosen world's own config."""

    game: str = knob("pursuit", "which world; `rematch worlds` lists them")
    seed: int = knob(0, "everything random in the run follows from it", low=0, high=2**32 - 1)
    threads: int = knob(2, "threads; results do not depend on it", low=1, high=64)
    games: int = knob(2048, "games that step together", low=1, high=2**22)
    steps: int = knob(32, "steps of each game per iteration", low=1, high=2**20)
    total_steps: int = knob(10_000_000, "steps of all games together; the run ends there", low=1)
    stagger: int = knob(
        0, "steps over which the first games begin, so that they do not all end together", low=0
    )
    anywhere: float = knob(
        0.0, "share of training games that begin anywhere, where the world can start anywhere", low=0, high=1
    )
    start_iteration: int = knob(
        0, "iteration to begin with, where a policy (--from) has those before it behind it: schedules run "
        "over what remains", low=0,
    )  # fmt: skip
    save_every: int = knob(20, "iterations between checkpoints", low=1)
    learner: str = knob(
        "ppo", "model-free, by looking ahead with the rules, from a search of the world's, or with a memory",
        choices=("ppo", "lookahead", "expert", "dqn"),
    )  # fmt: skip
    swarm: str = knob(
        "off", "where episodes begin: at power-on; spread over the savestates found so far by their band; or "
        "all at the newest record", choices=("off", "bands", "all"),
    )  # fmt: skip
    world: Any = field(default=None)
    network: NetworkConfig = part(NetworkConfig, needs="learner=ppo|lookahead|expert")
    ppo: PpoConfig = part(PpoConfig, needs="learner=ppo")
    lookahead: LookaheadConfig = part(LookaheadConfig, needs="learner=lookahead")
    expert: ExpertConfig = part(ExpertConfig, needs="learner=expert")
    dqn: DqnConfig = part(DqnConfig, needs="learner=dqn")
    novelty: NoveltyConfig = part(NoveltyConfig, needs="learner=dqn")
    rnd_screen: RndScreenConfig = part(RndScreenConfig, needs="learner=dqn")
    milestones: MilestonesConfig = part(MilestonesConfig, needs="learner=dqn")
    bands: SwarmConfig = part(SwarmConfig, needs="swarm=bands")
    watch: WatchConfig = part(WatchConfig, needs="learner=dqn")
    league: LeagueConfig = part(LeagueConfig, needs="learner=ppo|expert")
    schedule: ScheduleConfig = part(ScheduleConfig, needs="learner=ppo")
    curriculum: CurriculumConfig = part(CurriculumConfig, needs="learner=ppo")
    rollback: RollbackConfig = part(RollbackConfig, needs="learner=ppo")
    ewc: EwcConfig = part(EwcConfig, needs="learner=ppo")
    rnd: RndConfig = part(RndConfig, needs="learner=ppo")
    evaluation: EvaluationConfig = part(EvaluationConfig)

    @property
    def iterations(self) -> int:
        """The most there can be; phases and levels may end a run before."""
        per, roles = self.games * self.steps, max(1, len(registry.find(self.game).BOTS))
        return min(-(-self.total_steps // per), self.schedule.iterations(roles, per) or sys.maxsize)

    def check(self) -> None:
        module = registry.find(self.game)
        check_rivals(module, self.league.scripted, "league.scripted")
        check_rivals(module, self.evaluation.rivals, "evaluation.rivals")
        if self.anywhere and "anywhere" not in module.make(self.world, 1, 0, 0).spec.stage:
            raise ConfigError(f"anywhere = {self.anywhere:g}: {self.game} cannot begin anywhere; expected 0")
        roles, climbs = list(module.BOTS), self.curriculum.kind != "none"
        check_schedule(self.schedule, module, roles)
        check_rollback(self.rollback, self.schedule.kind, roles)
        check_ewc(self.ewc, climbs)
        check_exploiters(self)
        if self.start_iteration >= self.iterations:
            raise ConfigError(f"start_iteration = {self.start_iteration}: expected less than the run's "
                              f"{self.iterations} iterations (total_steps / (games x steps))")
        if (self.ppo.temperature, self.ppo.temperature_final) != (1.0, 1.0):
            for role in module.make(self.world, 1, 0, 0).spec.roles.values():
                if role.actions.kind != "discrete":
                    raise ConfigError(f"ppo.temperature = {self.ppo.temperature:g}: the actions of "
                                      f"{role.name} are continuous; expected 1")
        if self.ppo.average and self.schedule.convergence_consecutive:
            raise ConfigError(f"ppo.average = {self.ppo.average:g}: who is judged to have converged is kept "
                              "as judged; expected 0, or schedule.convergence_consecutive 0")
        if climbs:
            ladder(self.curriculum, module, self.world, module.make(self.world, 1, 0, 0).spec)
        elif self.schedule.last_first or self.schedule.warm_start_steps:
            name = "last_first" if self.schedule.last_first else "warm_start_steps"
            raise ConfigError(
                f"schedule.{name} = {getattr(self.schedule, name)}: there is no new level without a "
                "curriculum; expected curriculum.kind discrete or smooth"
            )
        if self.learner == "lookahead":
            check_network(self.network)
            check_spec(module.make(self.world, 1, 0, 0).spec)
        if self.learner == "dqn" or self.swarm != "off":
            world = module.make(self.world, 1, 0, 0)
            check_swarm(self.swarm, self.bands, self.learner, world)
            if self.learner == "dqn":
                check_dqn(self, world.spec)
                check_milestones(self.milestones, world.spec.role_of(0), world.spec.world)
                check_watch(self.watch, module)
                chance = getattr(module, "CHANCE", True) or self.dqn.epsilon_play
                if not chance and self.evaluation.games > 1:
                    raise ConfigError("dqn.epsilon_play = 0: nothing is left to chance, evaluated games "
                                      "would all be one; expected more than 0, or evaluation.games 1")
        if self.learner == "expert":
            check_search(module.make(self.world, 1, 0, 0))
            check_plies(self.expert, module.make(self.world, 1, 0, 0), self.network.critic)
        net = self.network
        if (net.encoder, net.critic, net.table) != ("mlp", "own", False):
            for role in module.make(self.world, 1, 0, 0).spec.roles.values():
                layout(role, net)  # refuses what the role cannot have
        if self.network.in_torch and self.ppo.gradient != "native":
            raise ConfigError(f"ppo.gradient = {self.ppo.gradient}: has no effect with this network, whose "
                              "gradient is always torch's; leave it out")
        need = self.games * self.steps * 4 * 64
        if need > 64 * 2**30:
            raise ConfigError(
                f"games = {self.games}: a tape of {need / 2**30:.0f} GiB; expected fewer games or steps"
            )


def idle_in(config: Config, spec: Spec, key: str) -> str:
    """Why a setting has nothing to do in a world of this kind, or beside others; empty if it has."""
    if key == "network.fourier" and all(all(role.choices) for role in spec.roles.values()):
        return "players see names alone, no numbers"
    warmup = config.schedule.phase_warmup
    if key == "schedule.phase_warmup" and warmup and min(warmup) >= config.schedule.phase_steps:
        return f"none of it is shorter than schedule.phase_steps = {config.schedule.phase_steps}"
    if key.startswith("network.log_std") and all(r.actions.kind == "discrete" for r in spec.roles.values()):
        return "all actions are discrete"
    if key.startswith("evaluation.alarm") and len(spec.roles) != 2:
        return "there is no gap but between two roles"
    if key.startswith("milestones.") and not spec.role_of(0).milestones:
        return "the world tells no milestones"
    if key == "swarm" and START not in spec.stage:
        return "the world has no savestates"
    alone = key.startswith("league.") or key == "evaluation.past"
    return "the world has one seat" if alone and spec.seats == 1 else ""
