/* The scripted players (pursuit specification, section 8). Each reads one game and returns a desired heading and
 * speed, or a turn rate; all steer the same unicycle. Plain C99 that also compiles as CUDA C. */
#ifndef REMATCH_PURSUIT_BOTS_H
#define REMATCH_PURSUIT_BOTS_H

#include "state.h"

enum {
    RANDOM, STAND_STILL,
    PURE_PURSUIT, LEAD_PURSUIT, PROPORTIONAL_NAVIGATION, LION,   /* pursuers */
    FLEE_STRAIGHT, FLEE_TO_CORNER, WALL_RUNNER, OBSTACLE_ORBIT,  /* evaders */
    BOT_COUNT
};

typedef struct { float speed, turn; } Action; /* both in [-1, 1] */
typedef struct { float x, y; } Point;

#define CLEARANCE 0.05f     /* m; gap between a robot and an obstacle that it passes */
#define NAVIGATION_GAIN 4.0f

/* One robot and its game: the argument of all bots. */
typedef struct {
    const Rules *rules;
    const Derived *derived;
    const Game *game;
    int me, other;
    float x, y, theta, v_max;   /* of this robot */
    float dx, dy, distance;     /* from this robot to the other */
} BotContext;

RM_FN BotContext bot_context(const Rules *rules, const Derived *derived, const Game *game, int me) {
    const float v_max = me == PURSUER ? derived->v_max[PURSUER] : derived->v_max[EVADER]; /* a variable index would need local memory */
    BotContext p = {rules, derived, game, me, 1 - me, game->x[me], game->y[me], game->theta[me], v_max,
               game->x[1 - me] - game->x[me], game->y[1 - me] - game->y[me], 0.0f};
    p.distance = rm_hypot(p.dx, p.dy);
    return p;
}

RM_FN Point inside(const BotContext *p, float x, float y) {
    Point point = {rm_clip(x, -p->derived->limit_x, p->derived->limit_x),
                   rm_clip(y, -p->derived->limit_y, p->derived->limit_y)};
    return point;
}

/* --- steering -------------------------------------------------------------------------------------- */

RM_FN Action to_action(const BotContext *p, float v, float omega) {
    Action action = {rm_clip(p->v_max > 0.0f ? 2.0f * v / p->v_max - 1.0f : -1.0f, -1.0f, 1.0f),
                     rm_clip(omega * p->derived->per_omega, -1.0f, 1.0f)};
    return action;
}

/* Turn to a heading as fast as possible; drive at speed v unless the error is more than a right angle. */
RM_FN Action steer(const BotContext *p, float heading, float v) {
    float error = rm_wrap(heading - p->theta);
    return to_action(p, rm_abs(error) > RM_HALF_PI ? 0.0f : v, error / p->rules->dt);
}

/* The heading of the straight line to a point or, if an obstacle blocks it, of the tangent past the nearest such
 * obstacle, on the side that is closer to the straight line. */
RM_FN float heading_around(const BotContext *p, float x, float y) {
    const Game *game = p->game;
    float gx = x - p->x, gy = y - p->y, goal = rm_hypot(gx, gy);
    float straight = rm_atan2(gy, gx), best = straight, nearest = goal;
    if (!(goal > 0.0f)) return p->theta;
    for (int k = 0; k < game->obstacles[0]; k++) {
        float cx = game->obstacle_x[k] - p->x, cy = game->obstacle_y[k] - p->y;
        float reach = game->obstacle_radius[k] + p->rules->robot_radius + CLEARANCE;
        float along = (cx * gx + cy * gy) / goal, lateral = (gx * cy - gy * cx) / goal;
        float centre_distance = rm_hypot(cx, cy);
        if (along <= 0.0f || rm_abs(lateral) >= reach || centre_distance - reach >= nearest) continue;
        if (rm_hypot(cx - gx, cy - gy) > reach && along > goal) continue; /* the obstacle lies behind the point */
        nearest = centre_distance - reach;
        float square = centre_distance * centre_distance - reach * reach;
        float half_angle = square > 0.0f ? rm_atan2(reach, sqrtf(square)) : RM_HALF_PI;
        best = rm_wrap(rm_atan2(cy, cx) + (lateral > 0.0f ? -half_angle : half_angle));
    }
    return best;
}

/* Drive to a point and stop there. */
RM_FN Action go_to(const BotContext *p, float x, float y) {
    float remaining = rm_hypot(x - p->x, y - p->y);
    return steer(p, heading_around(p, x, y), rm_min(p->v_max, remaining / p->rules->dt));
}

/* Drive through a point at full speed. */
RM_FN Action head_for(const BotContext *p, float x, float y) { return steer(p, heading_around(p, x, y), p->v_max); }

/* --- pursuers -------------------------------------------------------------------------------------- */

RM_FN Action pure_pursuit(const BotContext *p) { return head_for(p, p->x + p->dx, p->y + p->dy); }

/* The point where a pursuer of speed v meets an evader of constant velocity w (on the Apollonius circle): the
 * smallest t > 0 with |d + w t| = v t. Without a solution: the evader's position after the time |d| / v. */
RM_FN Point intercept(const BotContext *p) {
    float sine, cosine, v = p->v_max, speed = p->game->v[p->other];
    rm_sincos(p->game->theta[p->other], &sine, &cosine);
    float wx = speed * cosine, wy = speed * sine;
    float a = v * v - speed * speed, b = p->dx * wx + p->dy * wy, c = p->distance * p->distance;
    float time = v > 0.0f ? p->distance / v : 0.0f;         /* used if there is no solution */
    float discriminant = b * b + a * c;
    if (rm_abs(a) > 1e-6f * v * v) {
        if (discriminant >= 0.0f) {
            float root = sqrtf(discriminant), first = (b + root) / a, second = (b - root) / a;
            float least = rm_min(first, second), most = rm_max(first, second);
            time = least > 0.0f ? least : most > 0.0f ? most : time;
        }
    } else if (b < 0.0f) {
        time = -c / (2.0f * b);                              /* equal speeds */
    }
    return inside(p, p->x + p->dx + wx * time, p->y + p->dy + wy * time);
}

/* Whether an obstacle blocks the straight line to a point. */
RM_FN int is_blocked(const BotContext *p, float x, float y) {
    return heading_around(p, x, y) != rm_atan2(y - p->y, x - p->x);
}

/* Drive to the intercept; to the evader itself while an obstacle is between, as it will then change its velocity. */
RM_FN Action lead_pursuit(const BotContext *p) {
    Point meet = intercept(p);
    if (is_blocked(p, p->x + p->dx, p->y + p->dy)) return pure_pursuit(p);
    return head_for(p, meet.x, meet.y);
}

/* Turn in proportion to the rotation of the line of sight. Pure pursuit while the evader is not ahead or an obstacle
 * is between. */
RM_FN Action proportional_navigation(const BotContext *p) {
    const Game *game = p->game;
    float off_heading = rm_abs(rm_wrap(rm_atan2(p->dy, p->dx) - p->theta));
    if (off_heading > RM_PI / 3.0f || is_blocked(p, p->x + p->dx, p->y + p->dy)) return pure_pursuit(p);
    float own_sine, own_cosine, sine, cosine;
    rm_sincos(p->theta, &own_sine, &own_cosine);
    rm_sincos(game->theta[p->other], &sine, &cosine);
    float wx = game->v[p->other] * cosine - p->v_max * own_cosine;
    float wy = game->v[p->other] * sine - p->v_max * own_sine;
    float line_rate = (p->dx * wy - p->dy * wx) / rm_max(p->distance * p->distance, 1e-6f);
    return to_action(p, p->v_max, NAVIGATION_GAIN * line_rate);
}

/* The lion's strategy: stay on the line from the centre of the arena to the evader, and move out along it as far as
 * a step allows. The step is two turning radii long, because a unicycle cannot turn on the spot while driving. */
RM_FN Action lion(const BotContext *p) {
    const Game *game = p->game;
    float sine, cosine;
    rm_sincos(game->theta[p->other], &sine, &cosine);
    float ahead = game->v[p->other] * p->rules->dt;
    float ex = p->x + p->dx + ahead * cosine, ey = p->y + p->dy + ahead * sine, out = rm_hypot(ex, ey);
    float lookahead = 2.0f * p->v_max * p->derived->per_omega;
    if (out <= lookahead || p->distance <= lookahead) return lead_pursuit(p);
    float ux = ex / out, uy = ey / out;
    float along = p->x * ux + p->y * uy, lateral = p->x * uy - p->y * ux;
    float further = along + sqrtf(rm_max(lookahead * lookahead - lateral * lateral, 0.0f));
    float aim = rm_clip(further, 0.0f, out);
    if (is_blocked(p, aim * ux, aim * uy)) return pure_pursuit(p); /* an obstacle is on the line */
    return steer(p, rm_atan2(aim * uy - p->y, aim * ux - p->x), p->v_max);
}

/* --- evaders --------------------------------------------------------------------------------------- */

/* Away from the pursuer; near a wall, along the wall. */
RM_FN Action flee_straight(const BotContext *p) {
    float away = p->distance > 0.0f ? 1.0f / p->distance : 0.0f;
    float ux = -p->dx * away, uy = -p->dy * away;
    float near = 0.5f * p->v_max * p->derived->per_omega + CLEARANCE;
    int at_x = p->derived->limit_x - rm_abs(p->x) < near && ux * p->x > 0.0f;
    int at_y = p->derived->limit_y - rm_abs(p->y) < near && uy * p->y > 0.0f;
    if (at_x && at_y) { /* a corner: out along the wall on which the pursuer is farther away */
        if (rm_abs(ux) > rm_abs(uy)) { ux = 0.0f; uy = -uy; } else { ux = -ux; uy = 0.0f; }
    } else if (at_x) {
        ux = 0.0f;
    } else if (at_y) {
        uy = 0.0f;
    }
    Point to = inside(p, p->x + 2.0f * ux, p->y + 2.0f * uy);
    return head_for(p, to.x, to.y);
}

/* The head start over the other robot on the straight line to a point: the smallest of four parts of it. */
RM_FN float head_start(const BotContext *p, float x, float y) {
    float own_speed = p->v_max, other_speed = p->other == PURSUER ? p->derived->v_max[PURSUER] : p->derived->v_max[EVADER], length = rm_hypot(x - p->x, y - p->y);
    float least = FAR_AWAY;
    for (int part = 1; part <= 4; part++) {
        float share = 0.25f * (float)part;
        float other_distance = rm_hypot(share * (x - p->x) - p->dx, share * (y - p->y) - p->dy);
        least = rm_min(least, other_distance * own_speed - share * length * other_speed);
    }
    return least;
}

/* To the corner with the largest head start; corners near the pursuer have a penalty. */
RM_FN Action flee_to_corner(const BotContext *p) {
    float best = -FAR_AWAY, near = 0.25f * p->derived->diagonal;
    Point to = {0.0f, 0.0f};
    for (int corner = 0; corner < 4; corner++) {
        Point at = {(corner & 1 ? 1.0f : -1.0f) * p->derived->limit_x,
                    (corner & 2 ? 1.0f : -1.0f) * p->derived->limit_y};
        float start = head_start(p, at.x, at.y);
        if (rm_hypot(at.x - p->x - p->dx, at.y - p->y - p->dy) < near) start -= near * p->v_max;
        if (start > best) { best = start; to = at; }
    }
    return go_to(p, to.x, to.y);
}

/* The position on the arena's edge (m, counter-clockwise from the lower right corner) nearest to a point. */
RM_FN float along_edge(float x, float y, float w, float h) {
    float right = w - x, left = w + x, top = h - y, bottom = h + y;
    float least = rm_min(rm_min(right, left), rm_min(top, bottom));
    x = rm_clip(x, -w, w);
    y = rm_clip(y, -h, h);
    if (least == right) return y + h;
    if (least == top) return 2.0f * h + (w - x);
    if (least == left) return 2.0f * h + 2.0f * w + (h - y);
    return 4.0f * h + 2.0f * w + (x + w);
}

RM_FN Point on_edge(float s, float w, float h) {
    float perimeter = 4.0f * (w + h);
    s = s < 0.0f ? s + perimeter : s >= perimeter ? s - perimeter : s;
    Point at = {w, s - h};
    if (s > 2.0f * h) { at.x = w - (s - 2.0f * h); at.y = h; }
    if (s > 2.0f * h + 2.0f * w) { at.x = -w; at.y = h - (s - 2.0f * h - 2.0f * w); }
    if (s > 4.0f * h + 2.0f * w) { at.x = -w + (s - 4.0f * h - 2.0f * w); at.y = -h; }
    return at;
}

/* Round the arena along its walls; turn back only when the pursuer is clearly closer ahead than behind. */
RM_FN Action wall_runner(const BotContext *p) {
    float turning_radius = p->v_max * p->derived->per_omega;
    float w = p->derived->limit_x - 0.5f * rm_min(turning_radius, p->derived->limit_x);
    float h = p->derived->limit_y - 0.5f * rm_min(turning_radius, p->derived->limit_y);
    float perimeter = 4.0f * (w + h), lookahead = rm_max(3.0f * turning_radius, 0.3f);
    float own_position = along_edge(p->x, p->y, w, h);
    float other_position = along_edge(p->x + p->dx, p->y + p->dy, w, h);
    float gap = other_position - own_position;
    float ahead = gap < 0.0f ? gap + perimeter : gap; /* counter-clockwise to the other robot */
    Point left = on_edge(own_position + lookahead, w, h), right = on_edge(own_position - lookahead, w, h);
    float sine, cosine;
    rm_sincos(p->theta, &sine, &cosine);
    int forward = (left.x - right.x) * cosine + (left.y - right.y) * sine >= 0.0f;
    float front = forward ? ahead : perimeter - ahead, behind = perimeter - front;
    int turn_back = front < 0.5f * behind;
    Point to = forward != turn_back ? left : right;
    return head_for(p, to.x, to.y);
}

/* Hide behind the obstacle with the best score; without obstacles, flee. */
RM_FN Action obstacle_orbit(const BotContext *p) {
    const Game *game = p->game;
    float best = -FAR_AWAY, px = p->x + p->dx, py = p->y + p->dy;
    Point to = {p->x, p->y};
    if (game->obstacles[0] == 0) return flee_straight(p);
    for (int k = 0; k < game->obstacles[0]; k++) {
        float cx = game->obstacle_x[k], cy = game->obstacle_y[k];
        float pursuer_distance = rm_hypot(cx - px, cy - py);
        float orbit = game->obstacle_radius[k] + p->rules->robot_radius + 2.0f * CLEARANCE;
        float ux = pursuer_distance > 0.0f ? (cx - px) / pursuer_distance : 1.0f;
        float uy = pursuer_distance > 0.0f ? (cy - py) / pursuer_distance : 0.0f;
        Point hiding_point = inside(p, cx + orbit * ux, cy + orbit * uy);
        float own_distance = rm_hypot(hiding_point.x - p->x, hiding_point.y - p->y);
        float value = rm_min(pursuer_distance, 4.0f) - 1.5f * own_distance + game->obstacle_radius[k];
        if (value > best) { best = value; to = hiding_point; }
    }
    return go_to(p, to.x, to.y);
}

/* --- all of them ----------------------------------------------------------------------------------- */

/* The action of bot number `which` at seat `me`; `random`: random words for the bot RANDOM. */
RM_FN Action bot(const Rules *rules, const Derived *derived, const Game *game, int me, int which, rm_quad random) {
    BotContext p = bot_context(rules, derived, game, me);
    Action stand_still = {-1.0f, rules->fixed_speed ? 1.0f : 0.0f}; /* at a fixed speed it circles */
    Action random_action = {2.0f * rm_unit(random.w[0]) - 1.0f, 2.0f * rm_unit(random.w[1]) - 1.0f};
    switch (which) {
        case RANDOM: return random_action;
        case PURE_PURSUIT: return pure_pursuit(&p);
        case LEAD_PURSUIT: return lead_pursuit(&p);
        case PROPORTIONAL_NAVIGATION: return proportional_navigation(&p);
        case LION: return lion(&p);
        case FLEE_STRAIGHT: return flee_straight(&p);
        case FLEE_TO_CORNER: return flee_to_corner(&p);
        case WALL_RUNNER: return wall_runner(&p);
        case OBSTACLE_ORBIT: return obstacle_orbit(&p);
        default: return stand_still;
    }
}

#endif
