/* The ten opponents (card-game specification, section 4): each tries every legal action in the rules, scores what
 * it leads to and takes the best. bots_reference.py says the same in words, and must score the same bits: sums
 * are of doubles, in the order written there. */
#ifndef REMATCH_BEASTY_BOTS_H
#define REMATCH_BEASTY_BOTS_H

#include <math.h>

#include "sight.h"

enum { RANDOM, HEURISTIC, AGGRESSIVE, DEFENSIVE, QUEUE, SKUNK_LOVER, NOISY, ONLINE, OUTCOME, DISTILLED, BOTS };

#define SAME 1e-6 /* scores this near are equal */
#define NOISE 0.15 /* sigma of `noisy` */

/* The position before and after a turn, seen by its player. Sums over all others are "theirs". */
typedef struct {
    Act act;
    Line before, after;
    int me;
    int my_bar, their_bar, my_gain, their_gain; /* points in the bar, and those that came in this turn */
    int my_out, their_out, my_loss, their_loss; /* the same of THAT'S IT */
    uint32_t hand;                              /* mine, after */
    uint32_t their_unseen;                      /* species that at least one of them has not played yet */
    int skunk_extra;                            /* for `skunk`: how often skunks lie in my bar - theirs, ... */
    int skunk_out_mine, skunk_out_theirs;
    int seen;                                   /* cards that lay in line, bar and THAT'S IT before */
} Tried;

/* What all actions of one decision have in common. */
typedef struct {
    Line line;
    int me;
    uint32_t unseen[MOST_PLAYERS], out[MOST_PLAYERS];
    uint32_t their_unseen;
} Position;

RM_FN Position position_of(const Rules *rules, const Table *table) {
    Position at;
    at.line = line_of(table);
    at.me = table->turn[0];
    at.their_unseen = 0;
    for (int p = 0; p < rules->players; p++) {
        at.unseen[p] = table->hand[p] | deck_set(table->deck[p]);
        at.out[p] = ALL_CARDS & ~(at.unseen[p] | table->bar[p] | line_set(at.line, p));
        if (p != at.me) at.their_unseen |= at.unseen[p];
    }
    return at;
}

RM_FN Tried tried(const Rules *rules, const Table *table, const Position *at, int action) {
    Table then = *table;
    Tried t = {act_of(action), at->line, {0, 0}, at->me, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    played(rules, &then, action);
    t.after = line_of(&then);
    t.hand = then.hand[t.me];
    t.their_unseen = at->their_unseen;
    t.seen = table->step[0];
    for (int p = 0; p < rules->players; p++) {
        const uint32_t unseen = p == t.me ? at->unseen[p] & ~(1u << t.act.card) : at->unseen[p];
        const uint32_t out = ALL_CARDS & ~(unseen | then.bar[p] | line_set(t.after, p));
        const int bar = set_points(then.bar[p]), gain = bar - set_points(table->bar[p]);
        const int gone = set_points(out), loss = gone - set_points(at->out[p]);
        if (p == t.me) {
            t.my_bar += bar, t.my_gain += gain, t.my_out += gone, t.my_loss += loss;
            t.skunk_extra += then.bar[p] >> SKUNK & 1, t.skunk_out_mine += out >> SKUNK & 1;
        } else {
            t.their_bar += bar, t.their_gain += gain, t.their_out += gone, t.their_loss += loss;
            t.skunk_extra -= then.bar[p] >> SKUNK & 1, t.skunk_out_theirs += out >> SKUNK & 1;
        }
    }
    return t;
}

RM_FN int is_mine(const Tried *t, Line line, int place) { return card_at(line.cards, place) >> 4 == t->me; }

/* How many of theirs in line are of these species. */
RM_FN int theirs_in(const Tried *t, Line line, uint32_t species) {
    int count = 0;
    for (int i = 0; i < line.n; i++) count += !is_mine(t, line, i) && (species >> species_at(line.cards, i) & 1);
    return count;
}

/* --- the heuristic and its kin --------------------------------------------------------------------------------- */

typedef struct { double bar, front, aggression; int skunk; } Taste;

RM_FN Taste taste_of(const Rules *rules, int bot) {
    Taste taste = {2.0, 1.1, 0.5, 0};
    if (bot == AGGRESSIVE) taste.bar = 3.0, taste.aggression = 0.8;
    if (bot == DEFENSIVE) taste.bar = 1.0, taste.aggression = 0.2;
    if (bot == QUEUE) taste.front = 2.0;
    if (bot == SKUNK_LOVER) taste.skunk = 4; /* a skunk's points count double */
    if (rules->document_variant) taste.aggression = 0.5;
    return taste;
}

RM_FN double material(const Tried *t, const Taste *taste) {
    const int extra = taste->skunk, n = t->after.n;
    double sum = taste->bar * (double)(t->my_bar - t->their_bar + extra * t->skunk_extra);
    for (int i = 0; i < n; i++) {
        const double behind = (double)i / (double)n;
        const double weight = taste->front * (1.0 - behind) + 0.3 * behind;
        const int species = species_at(t->after.cards, i);
        const double points = (double)(card_points(species) + (species == SKUNK ? extra : 0));
        sum += is_mine(t, t->after, i) ? weight * points : -(weight * points);
    }
    sum -= (1.0 - taste->aggression) * (double)(t->my_out + extra * t->skunk_out_mine);
    sum += taste->aggression * (double)(t->their_out + extra * t->skunk_out_theirs);
    sum += 0.1 * (double)(set_points(t->hand) + (t->hand >> SKUNK & 1 ? extra : 0));
    return sum;
}

/* The place of the card just played in the line after, or -1. */
RM_FN int own_place(const Tried *t) {
    const int card = t->me << 4 | t->act.card;
    for (int i = 0; i < t->after.n; i++)
        if (card_at(t->after.cards, i) == card) return i;
    return -1;
}

RM_FN double species_term(const Tried *t) {
    const int place = own_place(t);
    switch (t->act.card) {
        case SKUNK:
            if (t->their_loss >= 5) return 3.0;
            if (t->their_loss >= 3) return 1.5;
            return t->their_loss == 0 && t->my_loss > 0 ? -2.0 : 0.0;
        case PARROT: {
            if (!t->act.as) return 0.0;
            const double points = (double)card_points(species_at(t->before.cards, t->act.choice));
            return is_mine(t, t->before, t->act.choice) ? -0.5 * points : 0.5 * points;
        }
        case LION: return place == 0 ? 2.0 : 0.0;
        case MONKEY: return t->their_loss >= 4 ? 2.5 : 0.0;
        case SEAL: return t->my_gain > t->their_gain ? 1.5 : t->my_gain < t->their_gain ? -1.0 : 0.0;
        case SNAKE: {
            const int more = t->after.n - theirs_in(t, t->after, ALL_CARDS) > t->before.n - theirs_in(t, t->before, ALL_CARDS);
            int points = 0;
            for (int i = 0; i < t->after.n && i < 2; i++)
                if (is_mine(t, t->after, i)) points += card_points(species_at(t->after.cards, i));
            return more ? 0.5 * (double)points : 0.0;
        }
        case ZEBRA: return theirs_in(t, t->after, 1u << HIPPO | 1u << CROCODILE) ? 1.5 : -0.5;
        case KANGAROO: return place == 0 || place == 1 ? 1.0 : 0.0;
        case GIRAFFE: return place == 0 ? 1.5 : place == 1 ? 0.5 : 0.0;
        case CROCODILE: return 0.3 * (double)t->their_loss;
        case CHAMELEON: return 0.1 * (double)t->act.as;
        default: return 0.0; /* hippo */
    }
}

/* --- online ------------------------------------------------------------------------------------------------------ */

RM_FN double skunk_reaction(const Tried *t) {
    uint32_t left = species_in(t->before) & ~(1u << SKUNK), strongest = 0;
    int net = 0;
    if (bits_in(left) < 2) return -1.5;
    for (int k = 0; k < 2; k++) {
        const uint32_t top = 1u << highest_bit(left);
        strongest |= top;
        left ^= top;
    }
    for (int i = 0; i < t->before.n; i++) {
        const int species = species_at(t->before.cards, i);
        if (strongest >> species & 1) net += is_mine(t, t->before, i) ? -card_points(species) : card_points(species);
    }
    return net >= 4 ? 4.0 : net >= 2 ? 2.0 : net <= -2 ? -3.0 : 0.0;
}

RM_FN double reaction(const Tried *t) {
    switch (t->act.card) {
        case CROCODILE:
            if (species_in(t->before) >> CHAMELEON & 1) return 5.0;
            return t->their_unseen >> CHAMELEON & 1 ? -1.0 : 0.0;
        case SKUNK: return skunk_reaction(t);
        case LION:
            if (theirs_in(t, t->before, 1u << LION)) return -5.0;
            return t->their_unseen >> LION & 1 ? -2.0 : 3.0;
        case PARROT: {
            if (!t->act.as) return 0.0;
            const int i = t->act.choice;
            const double points = (double)card_points(species_at(t->before.cards, i));
            if (is_mine(t, t->before, i)) return -0.5 * points;
            return 0.3 * points + 2.0 * (1.0 - (double)i / (double)t->before.n);
        }
        default: return 0.0;
    }
}

/* --- the outcome players -------------------------------------------------------------------------------------------- */

typedef struct { double bar, their_bar, loss, their_loss, line, front, threats, parrot, skunk, monkey, early, late; } Hopes;

#define THREATS (1u << CROCODILE | 1u << HIPPO | 1u << LION | 1u << ZEBRA | 1u << GIRAFFE)

RM_FN Hopes hopes_of(int bot) {
    const Hopes outcome = {3.0, -2.0, -2.5, 2.0, 1.5, 2.0, 1.5, 0.4, 0.5, 15.0, 0.5, 0.3};
    const Hopes distilled = {4.2, -2.5, -3.5, 2.8, 1.8, 2.5, 2.2, 0.6, 0.7, 18.0, 0.6, 0.4};
    return bot == DISTILLED ? distilled : outcome;
}

RM_FN double line_value(const Tried *t, Line line) {
    const double weight[PLACES + 1] = {0.53, 0.37, 0.25, 0.27, 0.10};
    double sum = 0.0;
    for (int i = 0; i < line.n; i++) {
        const double points = weight[i] * (double)card_points(species_at(line.cards, i));
        sum += is_mine(t, line, i) ? points : -0.6 * points;
    }
    return sum;
}

RM_FN double outcome_score(const Tried *t, const Hopes *w, double value_before) {
    const int fewer = theirs_in(t, t->before, THREATS) - theirs_in(t, t->after, THREATS), card = t->act.card;
    double sum = w->bar * (double)t->my_gain;
    sum += w->their_bar * (double)t->their_gain;
    sum += w->loss * (double)t->my_loss;
    sum += w->their_loss * (double)t->their_loss;
    sum += w->line * (line_value(t, t->after) - value_before);
    if ((t->after.n > 0 && is_mine(t, t->after, 0)) || (t->after.n > 1 && is_mine(t, t->after, 1))) sum += w->front;
    sum += w->threats * (double)(fewer > 0 ? fewer : 0);
    if (card == PARROT && t->act.as) {
        const int i = t->act.choice, species = species_at(t->before.cards, i);
        const double points = (double)card_points(species);
        if (is_mine(t, t->before, i)) {
            sum += -0.8 * points;
        } else {
            sum += w->parrot * points;
            if (THREATS >> species & 1) sum += 1.5;
            if (RECURRING >> species & 1) sum += 1.0;
            sum += 0.5 * (1.0 - (double)i / (double)t->before.n);
        }
    }
    if (card == SKUNK) sum += w->skunk * (double)(t->their_loss - t->my_loss);
    if (card == MONKEY) {
        const uint32_t heavy = 1u << HIPPO | 1u << CROCODILE;
        if (theirs_in(t, t->after, heavy) < theirs_in(t, t->before, heavy)) sum += w->monkey;
        if (theirs_in(t, t->before, 1u << MONKEY)) sum += 0.8 * w->monkey;
    }
    if ((RECURRING >> card & 1) && t->seen <= 3) sum += w->early;
    if ((card == PARROT || card == SKUNK || card == CROCODILE) && t->seen >= 8) sum += w->late;
    return sum;
}

/* --- choosing ------------------------------------------------------------------------------------------------------- */

/* The key of a bot's random numbers at one decision: with an action it names every draw. */
typedef struct { uint64_t key; uint32_t game, stream; uint64_t step; } Chance;

RM_FN rm_quad chance_words(const Chance *c, uint32_t purpose) {
    return rm_philox(c->key, c->game, (uint32_t)c->step, c->stream | purpose << 8, (uint32_t)(c->step >> 32));
}

/* A normal number by Box and Muller's way; libm's own logarithm and cosine, as Python's. */
static double chance_normal(const Chance *c, int action) {
    const rm_quad random = chance_words(c, (uint32_t)action + 1);
    const double u = ((double)random.w[0] + 0.5) * (1.0 / 4294967296.0);
    const double v = ((double)random.w[1] + 0.5) * (1.0 / 4294967296.0);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* "The document lists one chameleon action per animal in line": how often an action counts among equals. */
RM_FN int weight_of(const Rules *rules, Line line, int action) {
    const Act act = act_of(action);
    int count = 0;
    if (!rules->document_variant || act.card != CHAMELEON) return 1;
    for (int i = 0; i < line.n; i++) count += species_at(line.cards, i) == act.as;
    return count;
}

/* One of the actions in `among`, by their weights and 32 random bits. */
RM_FN int weighted(const Rules *rules, Line line, uint64_t among, uint32_t random) {
    int total = 0;
    for (uint64_t left = among; left; left &= left - 1) total += weight_of(rules, line, lowest_bit(left));
    int at = (int)((uint64_t)random * (uint32_t)total >> 32);
    for (uint64_t left = among;; left &= left - 1) {
        const int action = lowest_bit(left);
        at -= weight_of(rules, line, action);
        if (at < 0) return action;
    }
}

/* A bot's score of every legal action; those within SAME of the best. */
RM_FN uint64_t scored(const Rules *rules, const Table *table, int bot, const Chance *chance, double *score) {
    const uint64_t all = legal(rules, table);
    const Position at = position_of(rules, table);
    const Taste taste = taste_of(rules, bot);
    const Hopes hopes = hopes_of(bot);
    double best = -1e30, value_before = 0.0;
    uint64_t among = 0;
    if (bot == RANDOM) return all;
    for (uint64_t left = all; left; left &= left - 1) {
        const int action = lowest_bit(left);
        const Tried t = tried(rules, table, &at, action);
        double sum;
        if (bot >= OUTCOME) {
            if (left == all) value_before = line_value(&t, t.before);
            sum = outcome_score(&t, &hopes, value_before);
        } else {
            sum = material(&t, &taste);
            sum += bot == ONLINE ? reaction(&t) : species_term(&t);
            if (bot == NOISY) sum += NOISE * chance_normal(chance, action);
        }
        score[action] = sum;
        if (sum > best) best = sum;
    }
    for (uint64_t left = all; left; left &= left - 1) {
        const int action = lowest_bit(left);
        if (best - score[action] < SAME) among |= (uint64_t)1 << action;
    }
    return among;
}

static int decide(const Rules *rules, const Table *table, int bot, const Chance *chance) {
    double score[ACTIONS];
    const uint64_t among = scored(rules, table, bot, chance, score);
    if (!(among & (among - 1))) return lowest_bit(among);
    return weighted(rules, line_of(table), among, chance_words(chance, 0).w[0]);
}

#endif
