/* The scripted rivals (pursuit specification, section 8). Each looks at one game and answers a desired
 * heading and speed, or a turn rate; all steer the same unicycle. Plain C99 that also compiles as CUDA C. */
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

#define CLEARANCE 0.05f     /* m left between a robot and an obstacle it passes */
#define NAVIGATION_GAIN 4.0f

/* A robot and what it may look up, so that the bots' functions stay short. */
typedef struct {
    const Rules *rules;
    const Derived *derived;
    const Game *game;
    int me, other;
    float x, y, theta, v_max;   /* mine */
    float dx, dy, distance;     /* from me to the other */
} Pilot;

RM_FN Pilot pilot(const Rules *rules, const Derived *derived, const Game *game, int me) {
    Pilot p = {rules, derived, game, me, 1 - me, game->x[me], game->y[me], game->theta[me], derived->v_max[me],
               game->x[1 - me] - game->x[me], game->y[1 - me] - game->y[me], 0.0f};
    p.distance = rm_hypot(p.dx, p.dy);
    return p;
}

RM_FN Point inside(const Pilot *p, float x, float y) {
    Point point = {rm_clip(x, -p->derived->limit_x, p->derived->limit_x),
                   rm_clip(y, -p->derived->limit_y, p->derived->limit_y)};
    return point;
}

/* --- steering -------------------------------------------------------------------------------------- */

RM_FN Action act(const Pilot *p, float v, float omega) {
    Action action = {rm_clip(p->v_max > 0.0f ? 2.0f * v / p->v_max - 1.0f : -1.0f, -1.0f, 1.0f),
                     rm_clip(omega * p->derived->per_omega, -1.0f, 1.0f)};
    return action;
}

/* Turn to a heading as fast as may be; go at speed v unless that would lead away from it. */
RM_FN Action steer(const Pilot *p, float heading, float v) {
    float error = rm_wrap(heading - p->theta);
    return act(p, rm_abs(error) > RM_HALF_PI ? 0.0f : v, error / p->rules->dt);
}

/* The heading of the straight way to a place or, where the nearest obstacle on it is in the way, of the
 * tangent past that obstacle on the side that is nearer to the straight way. */
RM_FN float heading_around(const Pilot *p, float x, float y) {
    const Game *game = p->game;
    float gx = x - p->x, gy = y - p->y, goal = rm_hypot(gx, gy);
    float straight = rm_atan2(gy, gx), best = straight, nearest = goal;
    if (!(goal > 0.0f)) return p->theta;
    for (int k = 0; k < game->obstacles[0]; k++) {
        float cx = game->obstacle_x[k] - p->x, cy = game->obstacle_y[k] - p->y;
        float reach = game->obstacle_radius[k] + p->rules->robot_radius + CLEARANCE;
        float along = (cx * gx + cy * gy) / goal, aside = (gx * cy - gy * cx) / goal;
        float apart = rm_hypot(cx, cy);
        if (along <= 0.0f || rm_abs(aside) >= reach || apart - reach >= nearest) continue;
        if (rm_hypot(cx - gx, cy - gy) > reach && along > goal) continue; /* it lies behind the place */
        nearest = apart - reach;
        float square = apart * apart - reach * reach;
        float half = square > 0.0f ? rm_atan2(reach, sqrtf(square)) : RM_HALF_PI;
        best = rm_wrap(rm_atan2(cy, cx) + (aside > 0.0f ? -half : half));
    }
    return best;
}

/* Drive to a place and stop there. */
RM_FN Action go_to(const Pilot *p, float x, float y) {
    float left = rm_hypot(x - p->x, y - p->y);
    return steer(p, heading_around(p, x, y), rm_min(p->v_max, left / p->rules->dt));
}

/* Drive through a place at full speed. */
RM_FN Action head_for(const Pilot *p, float x, float y) { return steer(p, heading_around(p, x, y), p->v_max); }

/* --- pursuers -------------------------------------------------------------------------------------- */

RM_FN Action pure_pursuit(const Pilot *p) { return head_for(p, p->x + p->dx, p->y + p->dy); }

/* Where a pursuer of speed v meets an evader that keeps its velocity (the point of the Apollonius circle
 * on its way): the least t > 0 with |d + w t| = v t. Where there is none, the point it passes meanwhile. */
RM_FN Point intercept(const Pilot *p) {
    float sine, cosine, v = p->v_max, speed = p->game->v[p->other];
    rm_sincos(p->game->theta[p->other], &sine, &cosine);
    float wx = speed * cosine, wy = speed * sine;
    float a = v * v - speed * speed, b = p->dx * wx + p->dy * wy, c = p->distance * p->distance;
    float time = v > 0.0f ? p->distance / v : 0.0f;         /* used where no meeting exists */
    float root = b * b + a * c;
    if (rm_abs(a) > 1e-6f * v * v) {
        if (root >= 0.0f) {
            float sure = sqrtf(root), first = (b + sure) / a, second = (b - sure) / a;
            float least = rm_min(first, second), most = rm_max(first, second);
            time = least > 0.0f ? least : most > 0.0f ? most : time;
        }
    } else if (b < 0.0f) {
        time = -c / (2.0f * b);                              /* equal speeds */
    }
    return inside(p, p->x + p->dx + wx * time, p->y + p->dy + wy * time);
}

/* Whether an obstacle stands on the straight way to a place. */
RM_FN int is_blocked(const Pilot *p, float x, float y) {
    return heading_around(p, x, y) != rm_atan2(y - p->y, x - p->x);
}

/* To the intercept; an evader behind an obstacle will not keep its velocity, so then straight after it. */
RM_FN Action lead_pursuit(const Pilot *p) {
    Point meet = intercept(p);
    if (is_blocked(p, p->x + p->dx, p->y + p->dy)) return pure_pursuit(p);
    return head_for(p, meet.x, meet.y);
}

/* Turn in proportion to the turning of the line of sight; first turn towards the evader, and round
 * obstacles go by the straight way's tangent. */
RM_FN Action proportional_navigation(const Pilot *p) {
    const Game *game = p->game;
    float off = rm_abs(rm_wrap(rm_atan2(p->dy, p->dx) - p->theta));
    if (off > RM_PI / 3.0f || is_blocked(p, p->x + p->dx, p->y + p->dy)) return pure_pursuit(p);
    float my_sine, my_cosine, sine, cosine;
    rm_sincos(p->theta, &my_sine, &my_cosine);
    rm_sincos(game->theta[p->other], &sine, &cosine);
    float wx = game->v[p->other] * cosine - p->v_max * my_cosine;
    float wy = game->v[p->other] * sine - p->v_max * my_sine;
    float line_rate = (p->dx * wy - p->dy * wx) / rm_max(p->distance * p->distance, 1e-6f);
    return act(p, p->v_max, NAVIGATION_GAIN * line_rate);
}

/* The lion's strategy: stay on the line from the middle of the arena to the evader, and move out along it
 * as far as the step allows. The step looked at is two turning radii long, for a unicycle cannot jink. */
RM_FN Action lion(const Pilot *p) {
    const Game *game = p->game;
    float sine, cosine;
    rm_sincos(game->theta[p->other], &sine, &cosine);
    float ahead = game->v[p->other] * p->rules->dt;
    float ex = p->x + p->dx + ahead * cosine, ey = p->y + p->dy + ahead * sine, out = rm_hypot(ex, ey);
    float look = 2.0f * p->v_max * p->derived->per_omega;
    if (out <= look || p->distance <= look) return lead_pursuit(p);
    float ux = ex / out, uy = ey / out;
    float along = p->x * ux + p->y * uy, aside = p->x * uy - p->y * ux;
    float further = along + sqrtf(rm_max(look * look - aside * aside, 0.0f));
    float aim = rm_clip(further, 0.0f, out);
    if (is_blocked(p, aim * ux, aim * uy)) return pure_pursuit(p); /* the line leads through an obstacle */
    return steer(p, rm_atan2(aim * uy - p->y, aim * ux - p->x), p->v_max);
}

/* --- evaders --------------------------------------------------------------------------------------- */

/* Away from the pursuer; where that leads into a wall, along the wall. */
RM_FN Action flee_straight(const Pilot *p) {
    float away = p->distance > 0.0f ? 1.0f / p->distance : 0.0f;
    float ux = -p->dx * away, uy = -p->dy * away;
    float near = 0.5f * p->v_max * p->derived->per_omega + CLEARANCE;
    int at_x = p->derived->limit_x - rm_abs(p->x) < near && ux * p->x > 0.0f;
    int at_y = p->derived->limit_y - rm_abs(p->y) < near && uy * p->y > 0.0f;
    if (at_x && at_y) { /* a corner: out along the wall on which the pursuer is further behind */
        if (rm_abs(ux) > rm_abs(uy)) { ux = 0.0f; uy = -uy; } else { ux = -ux; uy = 0.0f; }
    } else if (at_x) {
        ux = 0.0f;
    } else if (at_y) {
        uy = 0.0f;
    }
    Point to = inside(p, p->x + 2.0f * ux, p->y + 2.0f * uy);
    return head_for(p, to.x, to.y);
}

/* By how much (in metres) the other robot comes too late to every part of the straight way to a place. */
RM_FN float head_start(const Pilot *p, float x, float y) {
    float mine = p->v_max, theirs = p->derived->v_max[p->other], whole = rm_hypot(x - p->x, y - p->y);
    float least = FAR_AWAY;
    for (int part = 1; part <= 4; part++) {
        float share = 0.25f * (float)part;
        float there = rm_hypot(share * (x - p->x) - p->dx, share * (y - p->y) - p->dy);
        least = rm_min(least, there * mine - share * whole * theirs);
    }
    return least;
}

/* To the corner with the largest head start; one that the pursuer is near is worth less. */
RM_FN Action flee_to_corner(const Pilot *p) {
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

/* How far along the arena's edge (counter-clockwise from the lower right corner) a place lies nearest. */
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
    float round = 4.0f * (w + h);
    s = s < 0.0f ? s + round : s >= round ? s - round : s;
    Point at = {w, s - h};
    if (s > 2.0f * h) { at.x = w - (s - 2.0f * h); at.y = h; }
    if (s > 2.0f * h + 2.0f * w) { at.x = -w; at.y = h - (s - 2.0f * h - 2.0f * w); }
    if (s > 4.0f * h + 2.0f * w) { at.x = -w + (s - 4.0f * h - 2.0f * w); at.y = -h; }
    return at;
}

/* Round the arena along its walls; turns back only when the pursuer is clearly nearer ahead than behind. */
RM_FN Action wall_runner(const Pilot *p) {
    float room = p->v_max * p->derived->per_omega;
    float w = p->derived->limit_x - 0.5f * rm_min(room, p->derived->limit_x);
    float h = p->derived->limit_y - 0.5f * rm_min(room, p->derived->limit_y);
    float round = 4.0f * (w + h), look = rm_max(3.0f * room, 0.3f);
    float here = along_edge(p->x, p->y, w, h);
    float there = along_edge(p->x + p->dx, p->y + p->dy, w, h);
    float ahead = there - here < 0.0f ? there - here + round : there - here; /* counter-clockwise to it */
    Point left = on_edge(here + look, w, h), right = on_edge(here - look, w, h);
    float sine, cosine;
    rm_sincos(p->theta, &sine, &cosine);
    int forward = (left.x - right.x) * cosine + (left.y - right.y) * sine >= 0.0f;
    float front = forward ? ahead : round - ahead, behind = round - front;
    int turn_back = front < 0.5f * behind;
    Point to = forward != turn_back ? left : right;
    return head_for(p, to.x, to.y);
}

/* Keep the handiest obstacle between itself and the pursuer; without obstacles, flee. */
RM_FN Action obstacle_orbit(const Pilot *p) {
    const Game *game = p->game;
    float best = -FAR_AWAY, px = p->x + p->dx, py = p->y + p->dy;
    Point to = {p->x, p->y};
    if (game->obstacles[0] == 0) return flee_straight(p);
    for (int k = 0; k < game->obstacles[0]; k++) {
        float cx = game->obstacle_x[k], cy = game->obstacle_y[k], from = rm_hypot(cx - px, cy - py);
        float orbit = game->obstacle_radius[k] + p->rules->robot_radius + 2.0f * CLEARANCE;
        float ux = from > 0.0f ? (cx - px) / from : 1.0f, uy = from > 0.0f ? (cy - py) / from : 0.0f;
        Point shade = inside(p, cx + orbit * ux, cy + orbit * uy);
        float own = rm_hypot(shade.x - p->x, shade.y - p->y);
        float value = rm_min(from, 4.0f) - 1.5f * own + game->obstacle_radius[k]; /* large ones hide better */
        if (value > best) { best = value; to = shade; }
    }
    return go_to(p, to.x, to.y);
}

/* --- all of them ----------------------------------------------------------------------------------- */

/* What bot number `which` does at seat `me`; `random` feeds the random one. */
RM_FN Action bot(const Rules *rules, const Derived *derived, const Game *game, int me, int which, rm_quad random) {
    Pilot p = pilot(rules, derived, game, me);
    Action still = {-1.0f, rules->fixed_speed ? 1.0f : 0.0f}; /* who cannot stop circles on the spot */
    Action any = {2.0f * rm_unit(random.w[0]) - 1.0f, 2.0f * rm_unit(random.w[1]) - 1.0f};
    switch (which) {
        case RANDOM: return any;
        case PURE_PURSUIT: return pure_pursuit(&p);
        case LEAD_PURSUIT: return lead_pursuit(&p);
        case PROPORTIONAL_NAVIGATION: return proportional_navigation(&p);
        case LION: return lion(&p);
        case FLEE_STRAIGHT: return flee_straight(&p);
        case FLEE_TO_CORNER: return flee_to_corner(&p);
        case WALL_RUNNER: return wall_runner(&p);
        case OBSTACLE_ORBIT: return obstacle_orbit(&p);
        default: return still;
    }
}

#endif
