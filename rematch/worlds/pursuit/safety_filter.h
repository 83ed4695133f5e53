/* The safety filter of the pursuer (pursuit specification, section 4): a quadratic program with control barrier
 * functions h. Of all actions that keep a point slightly ahead of the axle safe, it chooses the nearest one to the
 * chosen action (v0, omega0):
 *
 *     minimise  150 (v - v0)^2 + (omega - omega0)^2   subject to   dt (a_v v + a_omega omega) + gamma h >= 0
 *
 * for every obstacle, every wall and optionally the other robot, within the bounds of v and omega. There are two
 * unknowns, so the solution is the chosen action, its projection onto one line, or the intersection of two lines;
 * all of these are tried. Bounds are lines too, so a speed that is fixed (`fixed_speed`, the first `prep_steps`)
 * is no special case: its two bounds coincide, and only omega is free.
 *
 * If no action is feasible, lines are relaxed, that is moved outwards by the smallest possible distance: obstacles
 * first, walls only if that is not enough, the other robot last.
 * Numbers are doubles: single precision fails at the intersections of nearly parallel lines. Included by rules.h. */
#ifndef REMATCH_PURSUIT_SAFETY_FILTER_H
#define REMATCH_PURSUIT_SAFETY_FILTER_H

#define TOLERANCE 1e-9 /* distance by which rounding may violate a line */

enum { MAX_LINES = 4 + 1 + 4 + MAX_OBSTACLES };

/* a s + b w + c >= 0 with (a, b) of length 1, where s = sqrt(150) v and w = omega. In (s, w) the cost is the squared
 * distance. */
typedef struct { double a, b, c; } Line;
typedef struct { double s, w; } ScaledAction;

/* All lines, the most important first: bounds, the other robot, walls, obstacles; `ends` has the end of each kind. */
typedef struct { Line line[MAX_LINES]; int ends[4]; } Constraints;

/* The point ahead of the axle, and the directions in which v and omega move it. */
typedef struct { double x, y, v_x, v_y, w_x, w_y; } LookaheadPoint;

RM_FN LookaheadPoint lookahead_point_of(const Block *b, int i) {
    float sine, cosine;
    rm_sincos(b->theta[PURSUER][i], &sine, &cosine);
    LookaheadPoint point = {
        b->x[PURSUER][i] + (double)SAFETY_AHEAD * cosine, b->y[PURSUER][i] + (double)SAFETY_AHEAD * sine,
        cosine, sine, -(double)SAFETY_AHEAD * sine, (double)SAFETY_AHEAD * cosine};
    return point;
}

/* The line of a barrier h with the gradient (gx, gy) at the point. */
RM_FN Line barrier_line(const Rules *rules, const LookaheadPoint *point, double gx, double gy, double h) {
    double a = rules->dt * (gx * point->v_x + gy * point->v_y) / sqrt(SAFETY_WEIGHT);
    double b = rules->dt * (gx * point->w_x + gy * point->w_y);
    double length = sqrt(a * a + b * b), per = length > 1e-12 ? 1.0 / length : 1.0;
    Line line = {a * per, b * per, rules->safety_gamma * h * per};
    return line;
}

/* h = |q - p|^2 - reach^2: the point keeps this distance from (x, y). */
RM_FN Line distance_line(const Rules *rules, const LookaheadPoint *point, double x, double y, double reach) {
    double dx = point->x - x, dy = point->y - y;
    return barrier_line(rules, point, 2.0 * dx, 2.0 * dy, dx * dx + dy * dy - reach * reach);
}

RM_FN Constraints constraints_of(const Rules *rules, const Derived *derived, const Block *b, int i) {
    const LookaheadPoint point = lookahead_point_of(b, i);
    const double root = sqrt(SAFETY_WEIGHT), v_max = derived->v_max[PURSUER], omega_max = rules->omega_max;
    const int frozen = b->step[i] < rules->prep_steps;
    const Line bounds[4] = {{1.0, 0.0, rules->fixed_speed && !frozen ? -root * v_max : 0.0},
                            {-1.0, 0.0, frozen ? 0.0 : root * v_max},
                            {0.0, 1.0, omega_max}, {0.0, -1.0, omega_max}};
    Constraints constraints;
    int n = 0;
    for (; n < 4; n++) constraints.line[n] = bounds[n];
    constraints.ends[0] = n;
    if (rules->safety_separation)
        constraints.line[n++] = distance_line(rules, &point, b->x[EVADER][i], b->y[EVADER][i], SAFETY_SEPARATION);
    constraints.ends[1] = n;
    constraints.line[n++] = barrier_line(rules, &point, -1.0, 0.0, derived->limit_x - point.x);
    constraints.line[n++] = barrier_line(rules, &point, 1.0, 0.0, derived->limit_x + point.x);
    constraints.line[n++] = barrier_line(rules, &point, 0.0, -1.0, derived->limit_y - point.y);
    constraints.line[n++] = barrier_line(rules, &point, 0.0, 1.0, derived->limit_y + point.y);
    constraints.ends[2] = n;
    for (int k = 0; k < b->obstacles[i]; k++)
        constraints.line[n++] = distance_line(rules, &point, b->ox[k][i], b->oy[k][i],
                                              (double)b->radius[k][i] + rules->robot_radius);
    constraints.ends[3] = n;
    return constraints;
}

RM_FN double margin(const Line *line, double s, double w) { return line->a * s + line->b * w + line->c; }

/* Whether (s, w) satisfies the first `count` lines. */
RM_FN int satisfies(const Constraints *constraints, int count, double s, double w) {
    int feasible = 1;
    for (int n = 0; n < count; n++) feasible &= margin(&constraints->line[n], s, w) >= -TOLERANCE;
    return feasible;
}

/* Move the action to the nearest one that satisfies all lines; 0 if there is none. */
RM_FN int project(const Constraints *constraints, ScaledAction *action) {
    const int count = constraints->ends[3];
    const double s0 = action->s, w0 = action->w;
    double least = -1.0;
    if (satisfies(constraints, count, s0, w0)) return 1;
    for (int n = 0; n < count; n++) { /* a feasible projection onto a line is the nearest of all */
        const Line *line = &constraints->line[n];
        double distance = margin(line, s0, w0), s = s0 - distance * line->a, w = w0 - distance * line->b;
        if (distance < 0.0 && satisfies(constraints, count, s, w)) {
            action->s = s;
            action->w = w;
            return 1;
        }
    }
    for (int n = 0; n < count; n++)
        for (int m = 0; m < n; m++) {
            const Line *one = &constraints->line[n], *two = &constraints->line[m];
            double det = one->a * two->b - one->b * two->a;
            if (det * det < 1e-18) continue;
            double s = (one->b * two->c - two->b * one->c) / det, w = (two->a * one->c - one->a * two->c) / det;
            double square = (s - s0) * (s - s0) + (w - w0) * (w - w0);
            if ((least < 0.0 || square < least) && satisfies(constraints, count, s, w)) {
                least = square;
                action->s = s;
                action->w = w;
            }
        }
    return least >= 0.0;
}

/* The smallest slack d >= 0 such that some (s, w) satisfies the first `count` lines, where those from `first_relaxed`
 * on are moved outwards by d: a linear program in (s, w, d), whose solution is an intersection of three planes. */
RM_FN double least_slack(const Constraints *constraints, int first_relaxed, int count) {
    const Line *line = constraints->line;
    double least = -1.0;
    for (int k = 0; k <= count; k++) /* index `count` is the plane d = 0 */
        for (int m = 0; m < k; m++)
            for (int n = 0; n < m; n++) {
                double ak = k < count ? line[k].a : 0.0, bk = k < count ? line[k].b : 0.0;
                double ck = k < count ? line[k].c : 0.0;
                double dk = k >= first_relaxed, dm = m >= first_relaxed, dn = n >= first_relaxed;
                double am = line[m].a, bm = line[m].b, cm = line[m].c, an = line[n].a, bn = line[n].b, cn = line[n].c;
                double kd = bm * dn - dm * bn, md = am * dn - dm * an, nd = am * bn - bm * an;
                double det = ak * kd - bk * md + dk * nd;
                if (det * det < 1e-24) continue;
                double kc = cm * dn - dm * cn, bc = bm * cn - cm * bn, ac = am * cn - cm * an;
                double s = -(ck * kd - bk * kc - dk * bc) / det;
                double w = -(ak * kc - ck * md + dk * ac) / det;
                double d = -(ak * bc - bk * ac + ck * nd) / det;
                int feasible = d >= -TOLERANCE;
                for (int j = 0; j < count; j++)
                    feasible &= margin(&line[j], s, w) + (j >= first_relaxed ? d : 0.0) >= -TOLERANCE;
                if (feasible && (least < 0.0 || d < least)) least = d;
            }
    if (least < 0.0) return FAR_AWAY; /* only by rounding; these lines are then ignored */
    return least > TOLERANCE ? least + TOLERANCE : 0.0;
}

/* Relax lines until an action is feasible; the most important kind is relaxed last. */
RM_FN void relax(Constraints *constraints) {
    for (int kind = 1; kind < 4; kind++) {
        double slack = least_slack(constraints, constraints->ends[kind - 1], constraints->ends[kind]);
        for (int n = constraints->ends[kind - 1]; n < constraints->ends[kind]; n++) constraints->line[n].c += slack;
    }
}

/* Replace the actions of the pursuers of a block by safe ones. */
RM_OUT_OF_LINE void filter_actions(const Rules *rules, const Derived *derived, const Block *b, Batch *batch,
                                   int row, int lanes, Controls *chosen) {
    const double root = sqrt(SAFETY_WEIGHT), v_max = derived->v_max[PURSUER], omega_max = rules->omega_max;
    for (int i = 0; i < lanes; i++) {
        OptionalState *optional = optional_of(derived, batch, row + i);
        Constraints constraints = constraints_of(rules, derived, b, i);
        double v = v_max * ((rm_clip(chosen->speed[i], -1.0f, 1.0f) + 1.0f) * 0.5f);
        double omega = omega_max * rm_clip(chosen->turn[i], -1.0f, 1.0f);
        ScaledAction action = {b->step[i] < rules->prep_steps ? 0.0 : root * v, omega};
        const ScaledAction before = action;
        if (!project(&constraints, &action)) {
            optional->safety_relaxed[0]++;
            relax(&constraints);
            project(&constraints, &action);
        }
        if (action.s == before.s && action.w == before.w) continue;
        optional->safety_interventions[0]++;
        if (v_max > 0.0 && !rules->fixed_speed) chosen->speed[i] = (float)(2.0 * action.s / (root * v_max) - 1.0);
        chosen->turn[i] = (float)(action.w / omega_max);
    }
}

/* Count steps that end with a larger violation than linearisation explains: a line uses the gradient of h, but a turn
 * by omega dt moves the point 0.1 (1 - cos(omega dt)) off that line, and gamma lets this accumulate. */
RM_OUT_OF_LINE void count_violations(const Rules *rules, const Derived *derived, const Block *b, Batch *batch,
                                     int row, int lanes) {
    for (int i = 0; i < lanes; i++) {
        const LookaheadPoint point = lookahead_point_of(b, i);
        double clearance = derived->limit_x - point.x, candidate = derived->limit_x + point.x;
        clearance = candidate < clearance ? candidate : clearance;
        candidate = derived->limit_y - point.y;
        clearance = candidate < clearance ? candidate : clearance;
        candidate = derived->limit_y + point.y;
        clearance = candidate < clearance ? candidate : clearance;
        for (int k = 0; k < b->obstacles[i]; k++) {
            double dx = point.x - b->ox[k][i], dy = point.y - b->oy[k][i];
            candidate = sqrt(dx * dx + dy * dy) - b->radius[k][i] - rules->robot_radius;
            clearance = candidate < clearance ? candidate : clearance;
        }
        if (rules->safety_separation) {
            double dx = point.x - b->x[EVADER][i], dy = point.y - b->y[EVADER][i];
            candidate = sqrt(dx * dx + dy * dy) - SAFETY_SEPARATION;
            clearance = candidate < clearance ? candidate : clearance;
        }
        optional_of(derived, batch, row + i)->safety_violations[0] += clearance < -(double)derived->safety_depth;
    }
}

#endif
