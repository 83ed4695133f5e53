/* The scripted players of bots.py for the GPU: the same decisions from the same random words. Plain C99 that also
 * compiles as CUDA C. */
#ifndef REMATCH_LATTICE_BOTS_H
#define REMATCH_LATTICE_BOTS_H

#include "rules.h"

enum { RANDOM, GO_STRAIGHT, CHASE, FLEE, BOTS }; /* in the order of BOT_NAMES in bots.py */

/* The actions whose next cell is nearest to the other robot's present cell, or furthest from it (FLEE), as bits.
 * `obs`: the observation of this seat, in whose frame the actions are. */
RM_FN int best_actions(const Rules *rules, const Tables *t, const float *obs, int seat, int which) {
    const int own = (int)obs[0], other = (int)obs[1], to_go = (int)obs[4];
    const int turns_only = seat == PURSUER && rules->skip && to_go % rules->skip == 0;
    int best = 0, actions = 0;
    for (int a = 0; a < ACTIONS; a++) {
        const int after = turns_only ? turn_state(own, a) : t->move[own * ACTIONS + a];
        const int square = t->square[relative(rules, t, after, other)], score = which == FLEE ? square : -square;
        if (a == 0 || score > best) {
            best = score;
            actions = 0;
        }
        if (score == best) actions |= 1 << a;
    }
    return actions;
}

/* An action of bot number `which`; ties are broken with the first random word. Probabilities are floats, as in
 * `ScriptedPlayer.action_probs`, and their sums doubles. */
RM_FN int bot(const Rules *rules, const Tables *t, const float *obs, int seat, int which, rm_quad random) {
    const int all = (1 << ACTIONS) - 1;
    const int actions = which == RANDOM        ? all
                      : which == GO_STRAIGHT ? 1 << STRAIGHT
                                             : best_actions(rules, t, obs, seat, which);
    const int count = (actions & 1) + (actions >> 1 & 1) + (actions >> 2 & 1);
    const double uniform = (double)random.w[0] * (1.0 / 4294967296.0), probability = (double)(float)(1.0 / count);
    const double left = actions & 1 ? probability : 0.0, straight = actions & 2 ? probability : 0.0;
    return (uniform >= left) + (uniform >= left + straight);
}

#endif
