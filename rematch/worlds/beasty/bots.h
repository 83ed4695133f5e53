/* The ten opponents (card-game specification, section 4): each tries every legal action in the rules, scores
 * what it leads to and takes the best. bots_reference.py says the same in words, and must score the same bits:
 * sums are of doubles, in the order written there. */
#ifndef REMATCH_BEASTY_BOTS_H
#define REMATCH_BEASTY_BOTS_H

#include <math.h>

#include "observation.h"

enum { RANDOM, HEURISTIC, AGGRESSIVE, DEFENSIVE, QUEUE, SKUNK_LOVER, NOISY, ONLINE, OUTCOME, DISTILLED, BOTS };

#define SAME 1e-6 /* scores this near are equal */
#define NOISE 0.15 /* sigma of `noisy` */

#define THREATS (1u << CROCODILE | 1u << HIPPO | 1u << LION | 1u << ZEBRA | 1u << GIRAFFE)
#define HEAVY (1u << HIPPO | 1u << CROCODILE)

/* A line as one player sees it. Sums over all others are "theirs". */
typedef struct {
    int mine, theirs;            /* points */
    int own;                     /* how many are mine */
    int threats, heavy, monkeys; /* theirs of these kinds */
    int front;                   /* how many of the first two are mine */
    double value;                /* of the outcome players */
} Tally;

/* "places weigh .53 .37 .25 .27 .10; theirs -0.6 of that" */
RM_FN Tally tally_of(Line line, int me) {
    const double weight[PLACES + 1] = {0.53, 0.37, 0.25, 0.27, 0.10};
    Tally out = {0, 0, 0, 0, 0, 0, 0, 0.0};
    for (int i = 0; i < line.n; i++) {
        const int species = species_at(line.cards, i), mine = card_at(line.cards, i) >> 4 == me;
        const int points = card_points(species), other = !mine;
        const double worth = weight[i] * (double)points;
        out.mine += mine ? points : 0;
        out.theirs += mine ? 0 : points;
        out.own += mine;
        out.threats += other & (int)(THREATS >> species);
        out.heavy += other & (int)(HEAVY >> species);
        out.monkeys += other & (species == MONKEY);
        out.front += mine & (i < 2);
        out.value += mine ? worth : -0.6 * worth;
    }
    return out;
}

/* What all actions of one decision have in common. */
typedef struct {
    const Table *table;
    Line line;
    Tally tally;
    int me;
    int seen;                           /* cards that lie in line, bar and THAT'S IT */
    int my_bar, their_bar;              /* points */
    int my_out, their_out;              /* points in THAT'S IT */
    int skunk_out_mine, skunk_out_theirs;
    uint32_t their_unseen;              /* species that at least one of them has not played yet */
} Position;

RM_FN Position position_of(const Rules *rules, const Table *table) {
    const int me = table->turn[0];
    const Line line = line_of(table);
    Position at = {table, line, tally_of(line, me), me, table->step[0], 0, 0, 0, 0, 0, 0, 0};
    for (int p = 0; p < rules->players; p++) {
        const uint32_t unseen = table->hand[p] | deck_set(table->deck[p]);
        const uint32_t out = ALL_CARDS & ~(unseen | table->bar[p] | line_set(line, p));
        const int bar = set_points(table->bar[p]), gone = set_points(out);
        if (p == me) {
            at.my_bar = bar, at.my_out = gone, at.skunk_out_mine = (int)(out >> SKUNK & 1);
        } else {
            at.their_bar += bar, at.their_out += gone, at.skunk_out_theirs += (int)(out >> SKUNK & 1);
            at.their_unseen |= unseen;
        }
    }
    return at;
}

/* An action tried: the line after, points that went into the bar and to THAT'S IT in this turn. Whoever has left
 * the line without entering the bar is out. */
typedef struct {
    Act act;
    Table then;
    Line after;
    Tally tally;
    int my_gain, their_gain, my_loss, their_loss;
} Tried;

RM_FN Tried tried(const Rules *rules, const Position *at, int action) {
    Tried t = {act_of(action), *at->table, {0, 0}, {0}, 0, 0, 0, 0};
    played(rules, &t.then, action);
    t.after = line_of(&t.then);
    t.tally = tally_of(t.after, at->me);
    for (int p = 0; p < rules->players; p++) {
        const uint32_t entered = (uint32_t)(t.then.bar[p] ^ at->table->bar[p]);
        if (p == at->me) t.my_gain += set_points(entered);
        else t.their_gain += set_points(entered);
    }
    t.my_loss = at->tally.mine + card_points(t.act.card) - t.tally.mine - t.my_gain;
    t.their_loss = at->tally.theirs - t.tally.theirs - t.their_gain;
    return t;
}

RM_FN int is_mine(const Position *at, Line line, int place) {
    return card_at(line.cards, place) >> 4 == at->me;
}

/* How many skunks of mine less of theirs, in the bar. */
RM_FN int skunks_in_bar(const Rules *rules, const Position *at, const Tried *t) {
    int more = 0;
    for (int p = 0; p < rules->players; p++) more += (t->then.bar[p] >> SKUNK & 1) * (p == at->me ? 1 : -1);
    return more;
}

RM_FN int skunks_standing(const Position *at, Line line, int mine) {
    int count = 0;
    for (int i = 0; i < line.n; i++)
        count += species_at(line.cards, i) == SKUNK && is_mine(at, line, i) == mine;
    return count;
}

/* How many skunks went out in this turn: of mine, or of theirs. */
RM_FN int skunks_lost(const Position *at, const Tried *t, int mine) {
    int lost = mine && t->act.card == SKUNK;
    lost += skunks_standing(at, at->line, mine) - skunks_standing(at, t->after, mine);
    for (int p = 0; p < MOST_PLAYERS; p++)
        if ((p == at->me) == mine) lost -= (t->then.bar[p] ^ at->table->bar[p]) >> SKUNK & 1;
    return lost;
}

/* --- the heuristic and its kin -------------------------------------------------------------------------- */

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

RM_FN double material(const Rules *rules, const Position *at, const Tried *t, const Taste *taste) {
    const int extra = taste->skunk, n = t->after.n, me = at->me;
    const uint32_t hand = t->then.hand[me];
    int bar = at->my_bar + t->my_gain - at->their_bar - t->their_gain;
    int my_out = at->my_out + t->my_loss, their_out = at->their_out + t->their_loss;
    if (extra) { /* skunks count more */
        bar += extra * skunks_in_bar(rules, at, t);
        my_out += extra * (at->skunk_out_mine + skunks_lost(at, t, 1));
        their_out += extra * (at->skunk_out_theirs + skunks_lost(at, t, 0));
    }
    double sum = taste->bar * (double)bar;
    for (int i = 0; i < n; i++) {
        const double behind = (double)i / (double)n;
        const double weight = taste->front * (1.0 - behind) + 0.3 * behind;
        const int species = species_at(t->after.cards, i);
        const double points = (double)(card_points(species) + (species == SKUNK ? extra : 0));
        sum += is_mine(at, t->after, i) ? weight * points : -(weight * points);
    }
    sum -= (1.0 - taste->aggression) * (double)my_out;
    sum += taste->aggression * (double)their_out;
    sum += 0.1 * (double)(set_points(hand) + (hand >> SKUNK & 1 ? extra : 0));
    return sum;
}

/* The place of the card just played in the line after, or -1. */
RM_FN int own_place(const Position *at, const Tried *t) {
    const int card = at->me << 4 | t->act.card;
    for (int i = 0; i < t->after.n; i++)
        if (card_at(t->after.cards, i) == card) return i;
    return -1;
}

RM_FN double species_term(const Position *at, const Tried *t) {
    const int place = own_place(at, t);
    switch (t->act.card) {
        case SKUNK:
            if (t->their_loss >= 5) return 3.0;
            if (t->their_loss >= 3) return 1.5;
            return t->their_loss == 0 && t->my_loss > 0 ? -2.0 : 0.0;
        case PARROT: {
            if (!t->act.as) return 0.0;
            const double points = (double)card_points(species_at(at->line.cards, t->act.choice));
            return is_mine(at, at->line, t->act.choice) ? -0.5 * points : 0.5 * points;
        }
        case LION: return place == 0 ? 2.0 : 0.0;
        case MONKEY: return t->their_loss >= 4 ? 2.5 : 0.0;
        case SEAL: return t->my_gain > t->their_gain ? 1.5 : t->my_gain < t->their_gain ? -1.0 : 0.0;
        case SNAKE: {
            int points = 0;
            for (int i = 0; i < t->after.n && i < 2; i++)
                if (is_mine(at, t->after, i)) points += card_points(species_at(t->after.cards, i));
            return t->tally.own > at->tally.own ? 0.5 * (double)points : 0.0;
        }
        case ZEBRA: return t->tally.heavy ? 1.5 : -0.5;
        case KANGAROO: return place == 0 || place == 1 ? 1.0 : 0.0;
        case GIRAFFE: return place == 0 ? 1.5 : place == 1 ? 0.5 : 0.0;
        case CROCODILE: return 0.3 * (double)t->their_loss;
        case CHAMELEON: return 0.1 * (double)t->act.as;
        default: return 0.0; /* hippo */
    }
}

/* --- online --------------------------------------------------------------------------------------------- */

RM_FN double skunk_reaction(const Position *at) {
    uint32_t left = species_in(at->line) & ~(1u << SKUNK), strongest = 0;
    int net = 0;
    if (bits_in(left) < 2) return -1.5;
    for (int k = 0; k < 2; k++) {
        const uint32_t top = 1u << highest_bit(left);
        strongest |= top;
        left ^= top;
    }
    for (int i = 0; i < at->line.n; i++) {
        const int species = species_at(at->line.cards, i), points = card_points(species);
        if (strongest >> species & 1) net += is_mine(at, at->line, i) ? -points : points;
    }
    return net >= 4 ? 4.0 : net >= 2 ? 2.0 : net <= -2 ? -3.0 : 0.0;
}

RM_FN int their_lion_stands(const Position *at) {
    for (int i = 0; i < at->line.n; i++)
        if (species_at(at->line.cards, i) == LION && !is_mine(at, at->line, i)) return 1;
    return 0;
}

RM_FN double reaction(const Position *at, const Tried *t) {
    switch (t->act.card) {
        case CROCODILE:
            if (species_in(at->line) >> CHAMELEON & 1) return 5.0;
            return at->their_unseen >> CHAMELEON & 1 ? -1.0 : 0.0;
        case SKUNK: return skunk_reaction(at);
        case LION:
            if (their_lion_stands(at)) return -5.0;
            return at->their_unseen >> LION & 1 ? -2.0 : 3.0;
        case PARROT: {
            if (!t->act.as) return 0.0;
            const int i = t->act.choice;
            const double points = (double)card_points(species_at(at->line.cards, i));
            if (is_mine(at, at->line, i)) return -0.5 * points;
            return 0.3 * points + 2.0 * (1.0 - (double)i / (double)at->line.n);
        }
        default: return 0.0;
    }
}

/* --- the outcome players -------------------------------------------------------------------------------- */

typedef struct {
    double bar, their_bar, loss, their_loss, line, front, threats, parrot, skunk, monkey, early, late;
} Hopes;

RM_FN Hopes hopes_of(int bot) {
    const Hopes outcome = {3.0, -2.0, -2.5, 2.0, 1.5, 2.0, 1.5, 0.4, 0.5, 15.0, 0.5, 0.3};
    const Hopes distilled = {4.2, -2.5, -3.5, 2.8, 1.8, 2.5, 2.2, 0.6, 0.7, 18.0, 0.6, 0.4};
    return bot == DISTILLED ? distilled : outcome;
}

RM_FN double outcome_score(const Position *at, const Tried *t, const Hopes *w) {
    const int fewer = at->tally.threats - t->tally.threats, card = t->act.card;
    double sum = w->bar * (double)t->my_gain;
    sum += w->their_bar * (double)t->their_gain;
    sum += w->loss * (double)t->my_loss;
    sum += w->their_loss * (double)t->their_loss;
    sum += w->line * (t->tally.value - at->tally.value);
    sum += t->tally.front ? w->front : 0.0;
    sum += w->threats * (double)(fewer > 0 ? fewer : 0);
    if (card == PARROT && t->act.as) {
        const int i = t->act.choice, species = species_at(at->line.cards, i);
        const double points = (double)card_points(species);
        if (is_mine(at, at->line, i)) {
            sum += -0.8 * points;
        } else {
            sum += w->parrot * points;
            if (THREATS >> species & 1) sum += 1.5;
            if (RECURRING >> species & 1) sum += 1.0;
            sum += 0.5 * (1.0 - (double)i / (double)at->line.n);
        }
    }
    if (card == SKUNK) sum += w->skunk * (double)(t->their_loss - t->my_loss);
    if (card == MONKEY) {
        if (t->tally.heavy < at->tally.heavy) sum += w->monkey;
        if (at->tally.monkeys) sum += 0.8 * w->monkey;
    }
    if ((RECURRING >> card & 1) && at->seen <= 3) sum += w->early;
    if ((card == PARROT || card == SKUNK || card == CROCODILE) && at->seen >= 8) sum += w->late;
    return sum;
}

/* --- choosing ------------------------------------------------------------------------------------------- */

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
    const Taste taste = taste_of(rules, bot);
    const Hopes hopes = hopes_of(bot);
    double best = -1e30;
    uint64_t among = 0;
    if (bot == RANDOM) return all;
    const Position at = position_of(rules, table);
    for (uint64_t left = all; left; left &= left - 1) {
        const int action = lowest_bit(left);
        const Tried t = tried(rules, &at, action);
        double sum;
        if (bot >= OUTCOME) {
            sum = outcome_score(&at, &t, &hopes);
        } else {
            sum = material(rules, &at, &t, &taste);
            sum += bot == ONLINE ? reaction(&at, &t) : species_term(&at, &t);
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
