"""A take: an episode from the start, played as deployed, with what the player thought and was paid.

It is played in a world of its own, and its bonuses are copies: the training does not notice. Pictures are the
world's own; what becomes of them is reporting/episode_film.py's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rematch.agents.build import bonuses
from rematch.agents.learners.dqn import Dqn
from rematch.agents.learners.replay_buffer import COMPONENTS
from rematch.core import rng
from rematch.core.arrays import Floats
from rematch.core.player import Noise, Seat
from rematch.core.recording import Pressed, Shot, Take
from rematch.core.world import CUT_OFF, DECIDED, RUNNING
from rematch.rollout.collector import side_by_side
from rematch.rollout.rollout_buffer import Tape
from rematch.training.episode_log import Diary

if TYPE_CHECKING:
    from rematch.training.trainer import Session

MOST_SHOTS = 600  # pictures of one take
MOST_BARS = 10  # milestones that are shown
PIECE = 64  # steps that bonuses are asked about together
ENDS = {RUNNING: "breaks off", DECIDED: "to the end", CUT_OFF: "cut off"}


class Camera:
    """Films one episode of a session."""

    def __init__(self, session: Session, diary: Diary) -> None:
        self.session, self.diary = session, diary
        self.world = session.make(1, 0, session.config.seed)
        (self.role,) = session.spec.roles.values()
        self.learner = session.learners[self.role.name]
        self.bonuses = bonuses(session.config, self.role, 1)
        assert isinstance(self.learner, Dqn)
        for copied, own in zip(self.bonuses, self.learner.bonuses):
            copied.take_over(own)
        self.weights: Floats = self.learner.weights
        self.steps = session.config.watch.video_steps
        self.pace = -(-self.steps // MOST_SHOTS)
        self.paid: Floats = np.zeros((self.steps + 1, len(COMPONENTS)), np.float32)

    def record(self) -> tuple[Take, dict[str, Any]]:
        """The take, and what is worth noting of it."""
        world, player = self.world, self.session.policies[self.role.name]
        key = rng.key(self.session.config.seed, rng.EVALUATION, self.session.step)
        memory, trail, rows = None, [], np.zeros(1, np.int32)  # type: ignore[var-annotated]
        kept: list[tuple[int, Pressed, int, Floats, tuple[str, ...]]] = []
        tape, ended, step = Tape(self.session.spec, PIECE, 1), RUNNING, 0
        while step < self.steps and ended == RUNNING:
            sight = side_by_side(self.role, world.view[self.role.name])[:, 0]
            legal = world.view.mask.get(self.role.name)
            mask = None if legal is None else legal[:, 0]
            seat = Seat(self.role, self.role.seats[0], world, rows, sight, mask)
            move = player.act(seat, Noise(key, rng.ACT, step), memory)
            memory, action = move.memory, int(move.action[0])
            picture = self.session.module.draw(world, 0, trail)
            reached = self._reached(world)
            if step % self.pace == 0:
                kept.append((step, Pressed.of(picture), action, move.scores[0], reached))
            tape[self.role.name].sight[step % PIECE, 0, 0] = sight[0]
            view = world.step({self.role.name: np.array([[action]], np.int32)})
            ended = int(view.ended[0])
            tape.ended[step % PIECE, 0] = ended
            tape.length[step % PIECE, 0] = view.length[0]
            found = [name for _, name in getattr(world, "events", ())]
            tape.events += [(step % PIECE, 0, name) for name in found]
            reached = (*reached, *found)  # the end itself too: after it the world shows the next game
            self.paid[step + 1, 0] = view.reward[0, 0]
            step += 1
            if step % PIECE == 0 or ended != RUNNING or step == self.steps:
                self._score(tape, step)
        return self._cut(kept, step, ended, reached)

    def _reached(self, world: Any) -> tuple[str, ...]:
        return tuple(world.milestones(0)) if self.diary.world is not None else ()

    def _score(self, tape: Tape, step: int) -> None:
        """What the copies pay for the sights since the last time; the very first one was nobody's doing."""
        first, name = (step - 1) // PIECE * PIECE, self.role.name
        part = Tape(self.session.spec, step - first, 1)
        part[name].sight[:], part.ended[:] = tape[name].sight[: part.steps], tape.ended[: part.steps]
        part.length[:], part.events[:] = tape.length[: part.steps], tape.events
        for bonus in self.bonuses:
            self.paid[first:step, COMPONENTS.index(bonus.name)] = bonus.score(part, 0)[:, 0]
        self.paid[0, 1:] = 0
        tape.ended[:] = RUNNING
        tape.events.clear()

    def _cut(
        self, kept: list[tuple[int, Pressed, int, Floats, tuple[str, ...]]], steps: int, ended: int,
        reached: tuple[str, ...],
    ) -> tuple[Take, dict[str, Any]]:  # fmt: skip
        so_far = np.cumsum(self.paid[: steps + 1], axis=0, dtype=np.float64)
        total, last = so_far @ self.weights, self.paid @ self.weights
        shots = []
        for step, picture, action, scores, there in kept:
            columns = zip(COMPONENTS, self.paid[step].tolist(), so_far[step].tolist())
            paid = {name: (now, sum_) for name, now, sum_ in columns}
            paid["total"] = (float(last[step]), float(total[step]))
            bars = self._bars(there)
            shots.append(Shot(picture=picture, action=action, scores=scores, paid=paid, bars=bars))
        caption = f"{ENDS[ended]} after {steps} steps, R_env {so_far[-1, 0]:.1f}, R_total {total[-1]:.1f}"
        name = f"rollout_{self.session.step}"
        take = Take(name=name, actions=self.role.actions.names, shots=shots, pace=self.pace, caption=caption)
        returns = {f"return_{name}": float(x) for name, x in zip(COMPONENTS, so_far[-1])}
        noted = {"event": "film", "step": self.session.step, "name": name, "length": steps}
        noted |= {"ended": ENDS[ended], "milestones": list(reached), "return_total": float(total[-1])}
        return take, noted | returns

    def _bars(self, reached: tuple[str, ...]) -> tuple[tuple[str, float | None, bool], ...]:
        """Headlines first, then whatever else the world has set; with beliefs, the rest too."""
        believed = self.diary.believed()
        names = dict.fromkeys([*self.diary.headlines(), *reached[::-1], *believed])
        return tuple((name, believed.get(name), name in reached) for name in [*names][:MOST_BARS])
