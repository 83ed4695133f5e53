/* The safety filter of the pursuer (pursuit specification, section 4): of all actions that keep a point a
 * little ahead of its axle safe, the one nearest to what it wishes. With z = (v, omega):
 *
 *     least  150 (v - v0)^2 + (omega - omega0)^2   with   dt (a_v v + a_omega omega) + gamma h >= 0
 *
 * for every obstacle, wall and, where wanted, the other robot, within the bounds of v and omega. Two unknowns:
 * the answer is the wish, its foot on one line, or a corner of two, and all of them are tried. Bounds are lines
 * too, so that a speed that is not free (`fixed_speed`, the first `prep_steps`) needs no case of its own: its
 * bounds meet, and only omega is left.
 *
 * Where no action will do, lines are moved outwards: the obstacles' first; the walls' only as far as there is
 * none without, the other robot's last; each by the least that leaves an action.
 * Numbers are doubles: corners of nearly parallel lines are what single ones get wrong. Included by rules.h. */
#ifndef REMATCH_PURSUIT_SAFETY_H
#define REMATCH_PURSUIT_SAFETY_H

#define EXACT 1e-9 /* how far a line may be crossed by rounding */

enum { MOST_LINES = 4 + 1 + 4 + MAX_OBSTACLES };

/* a s + b w + c >= 0 with (a, b) of length 1, where s = sqrt(150) v and w = omega: there the cost is a distance. */
typedef struct { double a, b, c; } Line;
typedef struct { double s, w; } Wish;

/* Lines in the order in which they are kept: bounds, the other robot, walls, obstacles; `ends` of each kind. */
typedef struct { Line line[MOST_LINES]; int ends[4]; } Cage;

/* The point ahead of the axle, and the ways it goes by v and by omega. */
typedef struct { double x, y, v_x, v_y, w_x, w_y; } Nose;

RM_FN Nose nose_of(const Block *b, int i) {
    float sine, cosine;
    rm_sincos(b->theta[PURSUER][i], &sine, &cosine);
    Nose nose = {b->x[PURSUER][i] + (double)SAFETY_AHEAD * cosine, b->y[PURSUER][i] + (double)SAFETY_AHEAD * sine,
                 cosine, sine, -(double)SAFETY_AHEAD * sine, (double)SAFETY_AHEAD * cosine};
    return nose;
}

/* The line of h whose slope at the nose is (gx, gy). */
RM_FN Line line_of(const Rules *rules, const Nose *nose, double gx, double gy, double h) {
    double a = rules->dt * (gx * nose->v_x + gy * nose->v_y) / sqrt(SAFETY_WEIGHT);
    double b = rules->dt * (gx * nose->w_x + gy * nose->w_y);
    double length = sqrt(a * a + b * b), per = length > 1e-12 ? 1.0 / length : 1.0;
    Line line = {a * per, b * per, rules->safety_gamma * h * per};
    return line;
}

/* h = |q - p|^2 - reach^2: keep this far from a place. */
RM_FN Line keep_off(const Rules *rules, const Nose *nose, double x, double y, double reach) {
    double dx = nose->x - x, dy = nose->y - y;
    return line_of(rules, nose, 2.0 * dx, 2.0 * dy, dx * dx + dy * dy - reach * reach);
}

RM_FN Cage cage_of(const Rules *rules, const Derived *derived, const Block *b, int i) {
    const Nose nose = nose_of(b, i);
    const double root = sqrt(SAFETY_WEIGHT), v_max = derived->v_max[PURSUER], omega_max = rules->omega_max;
    const int frozen = b->step[i] < rules->prep_steps;
    const Line bounds[4] = {{1.0, 0.0, rules->fixed_speed && !frozen ? -root * v_max : 0.0},
                            {-1.0, 0.0, frozen ? 0.0 : root * v_max},
                            {0.0, 1.0, omega_max}, {0.0, -1.0, omega_max}};
    Cage cage;
    int n = 0;
    for (; n < 4; n++) cage.line[n] = bounds[n];
    cage.ends[0] = n;
    if (rules->safety_separation)
        cage.line[n++] = keep_off(rules, &nose, b->x[EVADER][i], b->y[EVADER][i], SAFETY_SEPARATION);
    cage.ends[1] = n;
    cage.line[n++] = line_of(rules, &nose, -1.0, 0.0, derived->limit_x - nose.x);
    cage.line[n++] = line_of(rules, &nose, 1.0, 0.0, derived->limit_x + nose.x);
    cage.line[n++] = line_of(rules, &nose, 0.0, -1.0, derived->limit_y - nose.y);
    cage.line[n++] = line_of(rules, &nose, 0.0, 1.0, derived->limit_y + nose.y);
    cage.ends[2] = n;
    for (int k = 0; k < b->obstacles[i]; k++)
        cage.line[n++] = keep_off(rules, &nose, b->ox[k][i], b->oy[k][i],
                                  (double)b->radius[k][i] + rules->robot_radius);
    cage.ends[3] = n;
    return cage;
}

RM_FN double room(const Line *line, double s, double w) { return line->a * s + line->b * w + line->c; }

/* Whether (s, w) lies within all of the first `count` lines. */
RM_FN int within(const Cage *cage, int count, double s, double w) {
    int fine = 1;
    for (int n = 0; n < count; n++) fine &= room(&cage->line[n], s, w) >= -EXACT;
    return fine;
}

/* The nearest place to the wish within all lines; 0 if there is none. */
RM_FN int nearest_within(const Cage *cage, Wish *wish) {
    const int count = cage->ends[3];
    const double s0 = wish->s, w0 = wish->w;
    double least = -1.0;
    if (within(cage, count, s0, w0)) return 1;
    for (int n = 0; n < count; n++) { /* a foot that lies within is the nearest of all */
        const Line *line = &cage->line[n];
        double over = room(line, s0, w0), s = s0 - over * line->a, w = w0 - over * line->b;
        if (over < 0.0 && within(cage, count, s, w)) {
            wish->s = s;
            wish->w = w;
            return 1;
        }
    }
    for (int n = 0; n < count; n++)
        for (int m = 0; m < n; m++) {
            const Line *one = &cage->line[n], *two = &cage->line[m];
            double det = one->a * two->b - one->b * two->a;
            if (det * det < 1e-18) continue;
            double s = (one->b * two->c - two->b * one->c) / det, w = (two->a * one->c - one->a * two->c) / det;
            double far = (s - s0) * (s - s0) + (w - w0) * (w - w0);
            if ((least < 0.0 || far < least) && within(cage, count, s, w)) {
                least = far;
                wish->s = s;
                wish->w = w;
            }
        }
    return least >= 0.0;
}

/* The least slack d >= 0 with which the lines from `kept` on, moved out by d, leave a place within all of the
 * first `count`: a linear program in (s, w, d), whose answer is a corner of three planes. */
RM_FN double least_slack(const Cage *cage, int kept, int count) {
    const Line *line = cage->line;
    double least = -1.0;
    for (int k = 0; k <= count; k++) /* number `count` is the plane d = 0 */
        for (int m = 0; m < k; m++)
            for (int n = 0; n < m; n++) {
                double ak = k < count ? line[k].a : 0.0, bk = k < count ? line[k].b : 0.0;
                double ck = k < count ? line[k].c : 0.0, dk = k >= kept, dm = m >= kept, dn = n >= kept;
                double am = line[m].a, bm = line[m].b, cm = line[m].c, an = line[n].a, bn = line[n].b, cn = line[n].c;
                double kd = bm * dn - dm * bn, md = am * dn - dm * an, nd = am * bn - bm * an;
                double det = ak * kd - bk * md + dk * nd;
                if (det * det < 1e-24) continue;
                double kc = cm * dn - dm * cn, bc = bm * cn - cm * bn, ac = am * cn - cm * an;
                double s = -(ck * kd - bk * kc - dk * bc) / det;
                double w = -(ak * kc - ck * md + dk * ac) / det;
                double d = -(ak * bc - bk * ac + ck * nd) / det;
                int fine = d >= -EXACT;
                for (int j = 0; j < count; j++)
                    fine &= room(&line[j], s, w) + (j >= kept ? d : 0.0) >= -EXACT;
                if (fine && (least < 0.0 || d < least)) least = d;
            }
    if (least < 0.0) return FAR_AWAY; /* never by arithmetic; by rounding these lines would not count */
    return least > EXACT ? least + EXACT : 0.0;
}

/* Move lines outwards until an action is left, the dearest kept first. */
RM_FN void relax(Cage *cage) {
    for (int kind = 1; kind < 4; kind++) {
        double slack = least_slack(cage, cage->ends[kind - 1], cage->ends[kind]);
        for (int n = cage->ends[kind - 1]; n < cage->ends[kind]; n++) cage->line[n].c += slack;
    }
}

/* What the pursuers of a block drive instead of what they chose. */
RM_APART void keep_safe(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row, int lanes,
                     Controls *chosen) {
    const double root = sqrt(SAFETY_WEIGHT), v_max = derived->v_max[PURSUER], omega_max = rules->omega_max;
    for (int i = 0; i < lanes; i++) {
        Annex *annex = annex_of(derived, batch, row + i);
        Cage cage = cage_of(rules, derived, b, i);
        double v = v_max * ((rm_clip(chosen->speed[i], -1.0f, 1.0f) + 1.0f) * 0.5f);
        double omega = omega_max * rm_clip(chosen->turn[i], -1.0f, 1.0f);
        Wish wish = {b->step[i] < rules->prep_steps ? 0.0 : root * v, omega};
        const Wish before = wish;
        if (!nearest_within(&cage, &wish)) {
            annex->safety_relaxed[0]++;
            relax(&cage);
            nearest_within(&cage, &wish);
        }
        if (wish.s == before.s && wish.w == before.w) continue;
        annex->safety_interventions[0]++;
        if (v_max > 0.0 && !rules->fixed_speed) chosen->speed[i] = (float)(2.0 * wish.s / (root * v_max) - 1.0);
        chosen->turn[i] = (float)(wish.w / omega_max);
    }
}

/* Steps that end with the nose deeper in what it should keep off than rounding explains: a line is the slope of
 * h, and turning by omega dt takes the nose 0.1 (1 - cos(omega dt)) off its line, which gamma lets add up. */
RM_APART void count_violations(const Rules *rules, const Derived *derived, const Block *b, Batch *batch, int row,
                            int lanes) {
    for (int i = 0; i < lanes; i++) {
        const Nose nose = nose_of(b, i);
        double free = derived->limit_x - nose.x, more = derived->limit_x + nose.x;
        free = more < free ? more : free;
        more = derived->limit_y - nose.y;
        free = more < free ? more : free;
        more = derived->limit_y + nose.y;
        free = more < free ? more : free;
        for (int k = 0; k < b->obstacles[i]; k++) {
            double dx = nose.x - b->ox[k][i], dy = nose.y - b->oy[k][i];
            more = sqrt(dx * dx + dy * dy) - b->radius[k][i] - rules->robot_radius;
            free = more < free ? more : free;
        }
        if (rules->safety_separation) {
            double dx = nose.x - b->x[EVADER][i], dy = nose.y - b->y[EVADER][i];
            more = sqrt(dx * dx + dy * dy) - SAFETY_SEPARATION;
            free = more < free ? more : free;
        }
        annex_of(derived, batch, row + i)->safety_violations[0] += free < -(double)derived->safety_depth;
    }
}

#endif
