"""The components of a run, in the order of every hook: the table of contents of training.

The order is behaviour. A feature is one file and one line here.
"""

from __future__ import annotations

from rematch.core.component import Component
from rematch.curriculum.demo_progress import DemoProgress
from rematch.curriculum.demonstrations import Demonstrations
from rematch.curriculum.levels import Levels
from rematch.curriculum.random_explorers import Explorers
from rematch.curriculum.random_starts import RandomStarts
from rematch.curriculum.savestates import Savestates
from rematch.exploration.count_bonus import CountBonus
from rematch.exploration.milestone_bonus import Milestones
from rematch.exploration.rnd import Rnd
from rematch.exploration.rnd_images import RndImages
from rematch.selfplay.balance import Balance
from rematch.selfplay.league import League
from rematch.selfplay.role_schedule import RoleSchedule
from rematch.stability.ewc import Ewc
from rematch.stability.rollback import Rollback
from rematch.training.components.episode_log import EpisodeLog
from rematch.training.components.episode_video import EpisodeVideo
from rematch.training.components.evaluator import Evaluator
from rematch.training.components.exploiters import Exploiters
from rematch.training.components.imitation import Imitation
from rematch.training.components.learners import Learners
from rematch.training.components.observation_summary import ObservationSummary
from rematch.training.components.past_policies import PastPolicies
from rematch.training.components.replays import Replays
from rematch.training.components.rollout_metrics import RolloutMetrics
from rematch.training.components.world_map import WorldMapRecord
from rematch.training.components.world_state import WorldState

COMPONENTS: tuple[type[Component], ...] = (
    Levels,  # before the schedule, which reads whether the level has changed
    RoleSchedule,
    Balance,  # after the schedule, whose roles it reduces
    Imitation,  # before the world, whose first games its policies play
    Savestates,  # before the world: a game that started from a savestate needs it to be restored
    Explorers,
    Demonstrations,
    RandomStarts,
    WorldState,
    Rnd,  # reward terms, in the order in which learners add them
    RndImages,
    CountBonus,
    Milestones,
    DemoProgress,
    Learners,
    RolloutMetrics,
    EpisodeLog,
    WorldMapRecord,
    Rollback,
    League,
    Exploiters,
    ObservationSummary,
    Ewc,
    EpisodeVideo,
    PastPolicies,
    Replays,
    Evaluator,  # last: it writes the evaluation with the entries of all others
)
