"""Pursuit once more, slowly and plainly: numpy float32, one whole-array line per rule, resets game by game.

Written from the specification (sections 1 to 3), to be compared bit for bit with the compiled rules. Arrays
are [n games] or [n, 2] for (pursuer, evader); obstacles are [n, 8]. Every number is a float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rematch.core import rng
from rematch.worlds.pursuit.config import Config
from support.float_arithmetic import PI, TWO_PI, A, atan2, clip, f, hypot, log, philox, sincos, wrap


class Reference:
    """The same games as a PursuitWorld of the same config, seeds and stages."""

    def __init__(self, config: Config, seeds: A, stage: A) -> None:
        self.config, self.n = config, len(seeds)
        self.seeds, self.next_stage = [int(s) for s in seeds], stage
        self.w, self.h = f(config.arena_width), f(config.arena_height)
        self.radius = f(config.robot_radius)
        self.limit = np.array([self.w * f(0.5) - self.radius, self.h * f(0.5) - self.radius])
        self.per_diagonal = f(1) / hypot(self.w, self.h)
        self.per_max_steps = f(1) / f(config.max_steps)
        self.v_max = np.array([config.pursuer_v_max, config.evader_v_max], f)
        self.num_observed = config.n_obstacles_max if config.n_obstacle_obs < 0 else config.n_obstacle_obs
        self.x, self.y, self.theta, self.v, self.omega = (np.zeros((self.n, 2), f) for _ in range(5))
        self.ox, self.oy, self.orad = (np.zeros((self.n, 8), f) for _ in range(3))
        self.steps, self.obstacles, self.episode, self.redraws, self.missing = (
            np.zeros(self.n, np.int32) for _ in range(5))
        self.visited = np.zeros((self.n, 10, 10), np.int32)  # [row of y, column of x]
        self.frames = np.zeros((self.n, 2, config.history_length, 7 + config.lidar_rays), f)  # oldest first
        self.factors = np.ones((self.n, 2, 2), f)  # [speed or turn rate, robot]
        self.delayed: list[list[A]] = [[] for _ in range(self.n)]  # actions [2 robots, 2], the oldest first
        for game in range(self.n):
            self.reset(game)
        self.record_frames()

    # --- the start of an episode ------------------------------------------------------------------------

    def reset(self, g: int) -> None:
        near, far, fewest, most = self.next_stage[g]
        seed, episode = self.seeds[g], int(self.episode[g])
        block = 0

        def draw() -> A:
            nonlocal block
            words = philox(seed, [episode, block, rng.RESET, 0])
            block += 1
            return np.array([word >> 8 for word in words], f) * f(2.0**-24)

        self.steps[g], self.v[g], self.omega[g], self.visited[g], self.frames[g] = 0, 0, 0, 0, 0
        self.reset_disturbances(g)
        while True:
            requested = int(fewest) + int(draw()[0] * f(most - fewest + 1))
            self.obstacles[g] = self.place_obstacles(g, requested, draw)
            self.missing[g] += requested - self.obstacles[g]
            if self.place_robots(g, near, far, draw):
                return
            self.redraws[g] += 1

    def reset_disturbances(self, g: int) -> None:
        c = self.config
        words = philox(self.seeds[g], [int(self.episode[g]), 0, rng.DYNAMICS, 0])
        unit = (np.array([word >> 8 for word in words], f) * f(2.0**-24)).reshape(2, 2)
        variation = np.array([c.speed_variation, c.turn_variation], f)[:, None]
        low, high = f(1) - variation, f(1) + variation
        self.factors[g] = low + (high - low) * unit
        self.delayed[g] = [np.array([[1 if c.fixed_speed else -1, 0]] * 2, f)] * c.action_delay

    def place_obstacles(self, g: int, requested: int, draw: Any) -> int:
        low, high = f(self.config.obstacle_radius_min), f(self.config.obstacle_radius_max)
        gap, margin = f(self.config.obstacle_gap), f(self.config.obstacle_margin)
        self.ox[g] = self.oy[g] = self.orad[g] = 0
        for k in range(requested):
            for _ in range(500):
                u = draw()
                r = low + (high - low) * u[0]
                room_x, room_y = self.w * f(0.5) - r - margin, self.h * f(0.5) - r - margin
                x, y = -room_x + (room_x + room_x) * u[1], -room_y + (room_y + room_y) * u[2]
                distance = hypot(x - self.ox[g, :k], y - self.oy[g, :k])
                if (distance >= r + self.orad[g, :k] + gap).all():
                    self.ox[g, k], self.oy[g, k], self.orad[g, k] = x, y, r
                    break
            else:
                return k
        return requested

    def place_robots(self, g: int, near: A, far: A, draw: Any) -> bool:
        lx, ly = self.limit
        for _ in range(1000):
            u = draw()
            px, ex = -lx + (lx + lx) * u[0], -lx + (lx + lx) * u[2]
            py, ey = -ly + (ly + ly) * u[1], -ly + (ly + ly) * u[3]
            if near <= hypot(ex - px, ey - py) <= far and self.free(g, px, py) and self.free(g, ex, ey):
                self.x[g], self.y[g] = (px, ex), (py, ey)
                self.theta[g] = -PI + TWO_PI * draw()[:2]
                return True
        return False

    def free(self, g: int, x: A, y: A) -> bool:
        return all(hypot(x - self.ox[g, k], y - self.oy[g, k]) >= self.orad[g, k] + self.radius
                   for k in range(self.obstacles[g]))

    # --- a step -----------------------------------------------------------------------------------------

    def step(self, action: A) -> dict[str, A]:
        """action [n, 2 seats, A] -> reward [n, 2], captured, timeout, length [n]; ended games restart."""
        c = self.config
        before, near_before = self.distance(), self.nearest_surface()
        speed, turn = self.executed(action)
        self.v = self.v_max * ((speed + f(1)) * f(0.5))
        self.v[self.steps < c.prep_steps, 0] = 0
        self.omega = f(c.omega_max) * turn
        if c.disturbed:
            self.v, self.omega = self.v * self.factors[:, 0], self.omega * self.factors[:, 1]
        sine, cosine = sincos(self.theta)
        self.x = self.x + self.v * cosine * f(c.dt)
        self.y = self.y + self.v * sine * f(c.dt)
        self.theta = wrap(self.theta + self.omega * f(c.dt))
        pushed = self.push_out()
        x, y = clip(self.x, -self.limit[0], self.limit[0]), clip(self.y, -self.limit[1], self.limit[1])
        walled = (x != self.x) | (y != self.y)
        self.x, self.y = x, y
        self.steps += 1
        distance = self.distance()
        captured = distance <= f(c.capture_radius)
        timeout = ~captured & (self.steps >= c.max_steps)
        closed = (before - distance) * self.per_diagonal
        if c.reward_form == "original":
            reward = self.original_reward(closed, near_before, captured, timeout)
            self.penalties(reward, pushed, walled)
            self.search_reward(reward)
        else:
            reward = self.reward(closed, captured, timeout)
            self.reward_extras(reward, near_before, captured | timeout)
            self.penalties(reward, pushed, walled)
        length = self.steps.copy()
        for game in np.flatnonzero(captured | timeout):
            self.episode[game] += 1
            self.reset(game)
        self.record_frames()
        return {"reward": reward, "captured": captured, "timeout": timeout, "length": length}

    def executed(self, action: A) -> tuple[A, A]:
        """Speed and turn [n, 2] of [n, 2, A]: clipped, delayed, with the noise of the actuators."""
        c = self.config
        turn = clip(action[:, :, -1], -1, 1)
        speed = np.ones_like(turn) if c.fixed_speed else clip(action[:, :, 0], -1, 1)
        if c.action_delay:
            for g in range(self.n):
                self.delayed[g] = [*self.delayed[g], np.stack([speed[g], turn[g]], 1)]
                speed[g], turn[g] = self.delayed[g].pop(0).T
        if c.actuator_noise:
            deviation = f(c.actuator_noise)
            for s in range(2):
                noise = self.noise(s, rng.ACTUATOR, 2)
                speed[:, s] = clip(speed[:, s] + f(2) * deviation * noise[:, 0], -1, 1)
                turn[:, s] = clip(turn[:, s] + deviation * noise[:, 1], -1, 1)
        return speed, turn

    def distance(self) -> A:
        return hypot(self.x[:, 1] - self.x[:, 0], self.y[:, 1] - self.y[:, 0])

    def push_out(self) -> A:
        pushed = np.zeros((self.n, 2), bool)
        for _ in range(3):
            for k in range(self.config.n_obstacles_max):
                exists = (k < self.obstacles)[:, None]
                dx, dy = self.x - self.ox[:, k, None], self.y - self.oy[:, k, None]
                reach = self.orad[:, k, None] + self.radius
                square = dx * dx + dy * dy
                hit = exists & (square < reach * reach)
                if hit.any():
                    distance = np.sqrt(square)
                    sine, cosine = sincos(self.theta)
                    safe = np.where(distance > 0, distance, f(1))
                    ux = np.where(distance > 0, dx / safe, cosine)
                    uy = np.where(distance > 0, dy / safe, sine)
                    self.x = np.where(hit, self.ox[:, k, None] + ux * (reach + f(1e-5)), self.x)
                    self.y = np.where(hit, self.oy[:, k, None] + uy * (reach + f(1e-5)), self.y)
                pushed |= hit
        return pushed

    # --- rewards ----------------------------------------------------------------------------------------

    def reward(self, closed: A, captured: A, timeout: A) -> A:
        c = self.config
        closing = f(c.distance_scale) * closed
        verdict = np.where(timeout, f(c.timeout_penalty), np.where(captured, f(c.capture_bonus), f(0)))
        evader = f(0) if c.use_visibility_reward else -closing
        return np.stack([closing + verdict, evader - verdict], 1)

    def reward_extras(self, reward: A, near_before: A, ended: A) -> None:
        c = self.config
        visible = self.check_visibility(0, c.sight_range, c.sight_half_angle, c.sight_occlusion)[0]
        if c.use_visibility_reward:
            reward[:, 1] += np.where(visible, f(-c.visibility_weight), f(c.visibility_weight))
        if c.survival_bonus:
            reward[:, 1] += np.where(ended, f(0), f(c.survival_bonus))
        if c.w_obs_approach:
            reward[:, 1] += f(c.w_obs_approach) * ((near_before - self.nearest_surface()) * self.per_diagonal)
        if c.w_vis_pursuer:
            reward[:, 0] += np.where(visible, f(c.w_vis_pursuer), f(0))
        if c.w_search:
            column = np.clip(((self.x[:, 0] * (f(2) / self.w) + f(1)) * f(5)).astype(int), 0, 9)
            row = np.clip(((self.y[:, 0] * (f(2) / self.h) + f(1)) * f(5)).astype(int), 0, 9)
            cell = np.arange(self.n), row, column
            stale = (self.steps - self.visited[cell]).astype(f) * self.per_max_steps
            reward[:, 0] += np.where(visible, f(0), f(c.w_search) * stale)
            self.visited[cell] = self.steps

    def penalties(self, reward: A, pushed: A, walled: A) -> None:
        c = self.config
        if c.w_collision:
            reward -= np.where(pushed, f(c.w_collision), f(0))
        if c.w_wall:
            reward -= np.where(walled, f(c.w_wall), f(0))

    # the form `original`

    def sensor_range(self) -> float:
        c = self.config
        return 1e9 if c.full_obs or c.visibility == "line_of_sight" else c.view_range

    def original_reward(self, closed: A, near_before: A, captured: A, timeout: A) -> A:
        """[n, 2] all terms but those of collisions and of the search."""
        c, running = self.config, ~(captured | timeout)
        clear, distance, _ = self.check_visibility(0, 1e9, 360.0, True)
        bonus, penalty = f(c.capture_bonus), f(c.timeout_penalty)
        pursuer = f(c.distance_scale) * closed
        pursuer = pursuer + np.where(timeout, penalty, np.where(captured, bonus, f(0)))
        sees = running & clear & (distance <= f(self.sensor_range()))
        pursuer = pursuer + np.where(sees, f(c.w_vis_pursuer), f(0))
        evader = -pursuer  # zero-sum unless it hides
        if c.use_visibility_reward:
            hiding = np.where(clear, f(-c.visibility_weight), f(c.visibility_weight))
            evader = np.where(running & (self.obstacles > 0), hiding, evader)
        evader = evader + np.where(running, f(c.survival_bonus), f(0))
        if c.w_obs_approach:
            near, before = np.maximum(self.nearest_surface(), f(0)), np.maximum(near_before, f(0))
            approach = f(c.w_obs_approach) * ((before - near) * self.per_diagonal)
            evader = evader + np.where(running, approach, f(0))
        return np.stack([pursuer, evader], 1)

    def search_reward(self, reward: A) -> None:
        """The mean age of the cells that the pursuer sees, while it does not see the evader."""
        c = self.config
        if not c.w_search:
            return
        unseen = ~self.check_visibility(0, *self.sensor_view())[0]
        total, seen = np.zeros(self.n, f), np.zeros(self.n, f)
        for row in range(10):
            for column in range(10):
                x = f(column + 0.5) * (self.w / f(10)) - self.w * f(0.5) - self.x[:, 0]
                y = f(row + 0.5) * (self.h / f(10)) - self.h * f(0.5) - self.y[:, 0]
                visible = unseen & (hypot(x, y) <= f(self.sensor_range())) & ~self.blocked(0, x, y)
                last = self.visited[:, row, column]
                age = np.minimum((self.steps - last).astype(f) / f(c.stale_steps), f(1))
                total = total + np.where(visible, np.where(last == 0, f(1), age), f(0))
                seen += visible
                self.visited[:, row, column] = np.where(visible, self.steps, last)
        reward[:, 0] += f(c.w_search) * np.where(seen > 0, total / np.maximum(seen, f(1)), f(0))

    def nearest_surface(self) -> A:
        surface = hypot(self.ox - self.x[:, 1:], self.oy - self.y[:, 1:]) - self.orad
        surface[np.arange(8) >= self.obstacles[:, None]] = 1e9
        return np.where(self.obstacles > 0, surface.min(1), f(0))

    def check_visibility(self, s: int, reach: float, half_angle: float, blocked: bool) -> tuple[A, A, A]:
        """[n] whether robot s sees the other, its distance, its relative bearing."""
        o = 1 - s
        dx, dy = self.x[:, o] - self.x[:, s], self.y[:, o] - self.y[:, s]
        distance, bearing = hypot(dx, dy), wrap(atan2(dy, dx) - self.theta[:, s])
        visible = (distance <= f(reach)) & (np.abs(bearing) <= f(half_angle) * (PI / f(180)))
        if blocked:
            visible &= ~self.blocked(s, dx, dy)
        return visible, distance, bearing

    def blocked(self, s: int, dx: A, dy: A) -> A:
        """[n] whether an obstacle lies between robot s and the point (dx, dy) from it."""
        out = np.zeros(self.n, bool)
        for k in range(self.config.n_obstacles_max):
            cx, cy = self.ox[:, k] - self.x[:, s], self.oy[:, k] - self.y[:, s]
            square = dx * dx + dy * dy
            along = clip((cx * dx + cy * dy) / np.where(square > 0, square, f(1)), 0, 1)
            mx, my = cx - along * dx, cy - along * dy
            out |= (mx * mx + my * my < self.orad[:, k] * self.orad[:, k]) & (k < self.obstacles)
        return out

    # --- observations -----------------------------------------------------------------------------------

    def obs(self, s: int) -> A:
        """[n, 14 + 2 K + 1] the full observation of robot s."""
        o = 1 - s
        bearing = atan2(self.y[:, 1] - self.y[:, 0], self.x[:, 1] - self.x[:, 0])
        if s == 1:
            bearing = np.where(bearing > 0, bearing - PI, bearing + PI)
        walls = [f(1) - np.abs(self.x[:, s] * (f(2) / self.w)), f(1) - np.abs(self.y[:, s] * (f(2) / self.h))]
        columns = [
            *self.robot(s), *self.robot(o),
            np.minimum(self.distance() * self.per_diagonal, f(1)),
            clip(wrap(bearing - self.theta[:, s]) * (f(1) / PI), -1, 1),
            *walls, *self.observed_obstacles(s),
            (self.config.max_steps - self.steps).astype(f) * self.per_max_steps,
        ]
        out = np.stack(columns, 1)
        if self.config.sensor_noise:
            noise = f(self.config.sensor_noise) * self.noise(s, rng.OBSERVATION, out.shape[1] - 1)
            angles = (2, 7, 11, *range(15, out.shape[1] - 1, 2))
            for c in range(out.shape[1] - 1):
                exists = (self.obstacles > (c - 14) // 2) if c >= 14 else True
                noisy = self.noisy(out[:, c], noise[:, c], c in angles, -1 if c < 10 else 0)
                out[:, c] = np.where(exists, noisy, out[:, c])
        return out

    @staticmethod
    def noisy(number: A, noise: A, angle: bool, low: float) -> A:
        """Number plus noise: an angle over pi wraps around, another number is clipped to [low, 1]."""
        if not angle:
            return clip(number + noise, low, 1)
        total = number + noise
        total = np.where(total > 1, total - f(2), total)
        return clip(np.where(total < -1, total + f(2), total), -1, 1)

    def robot(self, s: int) -> list[A]:
        largest = f(1) + f(self.config.speed_variation) if self.config.observe_drawn_speed else f(1)
        per_v = f(1) / (self.v_max[s] * largest) if self.v_max[s] > 0 else f(0)
        return [
            self.x[:, s] * (f(2) / self.w), self.y[:, s] * (f(2) / self.h),
            clip(self.theta[:, s] * (f(1) / PI), -1, 1), np.minimum(self.v[:, s] * per_v, f(1)),
            clip(self.omega[:, s] * (f(1) / f(self.config.omega_max)), -1, 1),
        ]

    def observed_obstacles(self, s: int) -> list[A]:
        """Distance and bearing, nearest first, padded with (1, 0)."""
        dx, dy = self.ox - self.x[:, s, None], self.oy - self.y[:, s, None]
        exists = np.arange(8) < self.obstacles[:, None]
        gap = np.where(exists, hypot(dx, dy) - self.orad, f(1e9))
        side = np.where(exists, wrap(atan2(dy, dx) - self.theta[:, s, None]), f(0))
        order = np.argsort(gap, axis=1, kind="stable")[:, : self.num_observed]
        gap, side = np.take_along_axis(gap, order, 1), np.take_along_axis(side, order, 1)
        gap, side = clip(gap * self.per_diagonal, -1, 1), clip(side * (f(1) / PI), -1, 1)
        return [column[:, k] for k in range(self.num_observed) for column in (gap, side)]

    # --- sensors ----------------------------------------------------------------------------------------

    def record_frames(self) -> None:
        """Append the newest frame of each robot."""
        if self.config.full_obs:
            return
        for s in range(2):
            self.frames[:, s, :-1] = self.frames[:, s, 1:].copy()
            self.frames[:, s, -1] = np.concatenate([self.state(s), self.lidar(s)], 1)

    def state(self, s: int) -> A:
        """[n, 7] the robot itself, and the other while it is visible."""
        visible, distance, bearing = self.check_visibility(s, *self.sensor_view())
        far = np.where(visible, np.minimum(distance * self.per_diagonal, f(1)), f(-1))
        side = np.where(visible, clip(bearing * (f(1) / PI), -1, 1), f(0))
        out = np.stack([*self.robot(s), far, side], 1)
        if self.config.sensor_noise:
            noise = f(self.config.sensor_noise) * self.noise(s, rng.OBSERVATION, 7)
            for c in range(7):
                noisy = self.noisy(out[:, c], noise[:, c], c in (2, 6), 0 if c == 5 else -1)
                out[:, c] = np.where(visible | (c < 5), noisy, out[:, c])
        return out

    def sensor_view(self) -> tuple[float, float, bool]:
        """Range, half angle, and whether obstacles block the view."""
        c = self.config
        angle, reach = c.visibility in ("fov", "combined"), c.visibility != "line_of_sight"
        blocked = c.visibility in ("line_of_sight", "combined")
        return c.view_range if reach else 1e9, c.view_half_angle if angle else 360.0, blocked

    def lidar(self, s: int) -> A:
        """[n, rays] length plus noise, divided by the range."""
        reach = f(self.config.lidar_range)
        noise = self.noise(s, rng.SENSOR, self.config.lidar_rays)
        noisy = clip(self.rays(s) + f(self.config.lidar_noise) * noise, 0, reach)
        return np.minimum(noisy * (f(1) / reach), f(1))

    def rays(self, s: int) -> A:
        """[n, rays] metres to the wall or obstacle that each ray meets first, at most the range."""
        count = self.config.lidar_rays
        x, y = self.x[:, s, None], self.y[:, s, None]
        off = np.arange(count, dtype=f) * (TWO_PI / f(count)) - PI
        uy, ux = sincos(self.theta[:, s, None] + off)
        with np.errstate(divide="ignore"):
            to_x = np.where(ux == 0, f(1e9), (np.where(ux > 0, self.w, -self.w) * f(0.5) - x) / ux)
            to_y = np.where(uy == 0, f(1e9), (np.where(uy > 0, self.h, -self.h) * f(0.5) - y) / uy)
        reach = np.minimum(np.minimum(to_x, to_y), f(self.config.lidar_range))
        for k in range(self.config.n_obstacles_max):
            cx, cy = self.ox[:, k, None] - x, self.oy[:, k, None] - y
            along, lateral = cx * ux + cy * uy, cx * uy - cy * ux
            under = self.orad[:, k, None] * self.orad[:, k, None] - lateral * lateral
            near = np.maximum(along - np.sqrt(np.maximum(under, f(0))), f(0))
            hit = (under >= 0) & (along > 0) & (k < self.obstacles)[:, None]
            reach = np.where(hit, np.minimum(near, reach), reach)
        return reach

    def noise(self, s: int, stream: int, count: int) -> A:
        """[n, count] standard normals: Box and Muller (1958), the four words of a block a quarter apart."""
        blocks = -(-count // 4)
        counter = np.zeros((self.n, blocks, 4), np.uint64)
        counter[..., 0], counter[..., 1] = np.arange(blocks), self.steps[:, None]
        counter[..., 2], counter[..., 3] = stream, (2 * self.episode + s)[:, None]
        key: Any = np.array(self.seeds, np.uint64)[:, None]
        words = (rng.philox(key, counter) >> np.uint64(8)).astype(np.int64)
        out = []
        for w in (0, 2):
            radius = np.sqrt(f(-2) * log((words[..., w] + 1).astype(f) * f(2.0**-24)))
            sine, cosine = sincos(TWO_PI * (words[..., w + 1].astype(f) * f(2.0**-24)))
            out += [radius * cosine, radius * sine]
        return np.concatenate(out, 1)[:, :count]
