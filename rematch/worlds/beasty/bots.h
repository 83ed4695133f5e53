/* The ten scripted bots (docs/reference/beasty.md): each plays every legal action, scores the result and takes
 * the best. reference/bots.py is the readable version and computes the same bits: sums are of doubles, in the
 * order of that file. */
#ifndef REMATCH_BEASTY_BOTS_H
#define REMATCH_BEASTY_BOTS_H

#include "observation.h"

#ifndef __CUDACC_RTC__
#include <math.h>
#endif

enum { RANDOM, HEURISTIC, AGGRESSIVE, DEFENSIVE, QUEUE, SKUNK_LOVER, NOISY, ONLINE, OUTCOME, DISTILLED, BOTS };

#define TIE_MARGIN 1e-6 /* scores closer than this are tied */
#define NOISE_SIGMA 0.15 /* standard deviation of the noise of `noisy` */

#define THREATS (1u << CROCODILE | 1u << HIPPO | 1u << LION | 1u << ZEBRA | 1u << GIRAFFE)
#define HEAVY (1u << HIPPO | 1u << CROCODILE)

/* Statistics of a line for one player ("me"); "their" sums over all other players. */
typedef struct {
    int my_points, their_points;
    int my_count;                /* my animals */
    int threats, heavy, monkeys; /* their animals of these kinds */
    int front;                   /* my animals among the first two */
    double value;                /* for the outcome bots */
} Tally;

/* "places weigh .53 .37 .25 .27 .10; theirs -0.6 of that" */
RM_FN Tally tally_of(Line line, int me) {
    const double weight[PLACES + 1] = {0.53, 0.37, 0.25, 0.27, 0.10};
    Tally out = {0, 0, 0, 0, 0, 0, 0, 0.0};
    for (int i = 0; i < line.n; i++) {
        const int species = species_at(line.cards, i), mine = card_at(line.cards, i) >> 4 == me;
        const int points = card_points(species), other = !mine;
        const double value = weight[i] * (double)points;
        out.my_points += mine ? points : 0;
        out.their_points += mine ? 0 : points;
        out.my_count += mine;
        out.threats += other & (int)(THREATS >> species);
        out.heavy += other & (int)(HEAVY >> species);
        out.monkeys += other & (species == MONKEY);
        out.front += mine & (i < 2);
        out.value += mine ? value : -0.6 * value;
    }
    return out;
}

/* Facts that all actions of one decision share. */
typedef struct {
    const Table *table;
    Line line;
    Tally tally;
    int me;
    int seen;                           /* cards in line, bar and THAT'S IT */
    int my_bar, their_bar;              /* points */
    int my_out, their_out;              /* points in THAT'S IT */
    int skunk_out_mine, skunk_out_theirs;
    uint32_t their_unseen;              /* species that at least one other player has not played yet */
} Position;

RM_FN Position position_of(const Rules *rules, const Table *table) {
    const int me = table->turn[0];
    const Line line = line_of(table);
    Position pos = {table, line, tally_of(line, me), me, table->step[0], 0, 0, 0, 0, 0, 0, 0};
    for (int p = 0; p < rules->players; p++) {
        const uint32_t unseen = table->hand[p] | deck_set(table->deck[p]);
        const uint32_t out = ALL_CARDS & ~(unseen | table->bar[p] | line_set(line, p));
        const int bar = set_points(table->bar[p]), out_points = set_points(out);
        if (p == me) {
            pos.my_bar = bar, pos.my_out = out_points, pos.skunk_out_mine = (int)(out >> SKUNK & 1);
        } else {
            pos.their_bar += bar, pos.their_out += out_points, pos.skunk_out_theirs += (int)(out >> SKUNK & 1);
            pos.their_unseen |= unseen;
        }
    }
    return pos;
}

/* The result of one action: the line after it, and points that entered the bar or THAT'S IT in this turn.
 * Animals that left the line without entering the bar are in THAT'S IT. */
typedef struct {
    Act act;
    Table result; /* the table after the card is played */
    Line after;
    Tally tally;
    int my_gain, their_gain, my_loss, their_loss;
} Trial;

RM_FN Trial try_action(const Rules *rules, const Position *pos, int action) {
    Trial t = {decode_action(action), *pos->table, {0, 0}, {0}, 0, 0, 0, 0};
    play_card(rules, &t.result, action);
    t.after = line_of(&t.result);
    t.tally = tally_of(t.after, pos->me);
    for (int p = 0; p < rules->players; p++) {
        const uint32_t entered = (uint32_t)(t.result.bar[p] ^ pos->table->bar[p]);
        if (p == pos->me) t.my_gain += set_points(entered);
        else t.their_gain += set_points(entered);
    }
    t.my_loss = pos->tally.my_points + card_points(t.act.card) - t.tally.my_points - t.my_gain;
    t.their_loss = pos->tally.their_points - t.tally.their_points - t.their_gain;
    return t;
}

RM_FN int is_mine(const Position *pos, Line line, int place) {
    return card_at(line.cards, place) >> 4 == pos->me;
}

/* My skunks minus their skunks in the bar. */
RM_FN int skunks_in_bar(const Rules *rules, const Position *pos, const Trial *t) {
    int difference = 0;
    for (int p = 0; p < rules->players; p++)
        difference += (t->result.bar[p] >> SKUNK & 1) * (p == pos->me ? 1 : -1);
    return difference;
}

RM_FN int skunks_in_line(const Position *pos, Line line, int mine) {
    int count = 0;
    for (int i = 0; i < line.n; i++)
        count += species_at(line.cards, i) == SKUNK && is_mine(pos, line, i) == mine;
    return count;
}

/* Skunks that went to THAT'S IT in this turn: mine, or theirs. */
RM_FN int skunks_lost(const Position *pos, const Trial *t, int mine) {
    int lost = mine && t->act.card == SKUNK;
    lost += skunks_in_line(pos, pos->line, mine) - skunks_in_line(pos, t->after, mine);
    for (int p = 0; p < MOST_PLAYERS; p++)
        if ((p == pos->me) == mine) lost -= (t->result.bar[p] ^ pos->table->bar[p]) >> SKUNK & 1;
    return lost;
}

/* --- heuristic bots ------------------------------------------------------------------------------------- */

typedef struct { double bar, front, aggression; int skunk; } HeuristicWeights;

RM_FN HeuristicWeights heuristic_weights(const Rules *rules, int bot) {
    HeuristicWeights weights = {2.0, 1.1, 0.5, 0};
    if (bot == AGGRESSIVE) weights.bar = 3.0, weights.aggression = 0.8;
    if (bot == DEFENSIVE) weights.bar = 1.0, weights.aggression = 0.2;
    if (bot == QUEUE) weights.front = 2.0;
    if (bot == SKUNK_LOVER) weights.skunk = 4; /* points of a skunk count twice */
    if (rules->earlier_rules) weights.aggression = 0.5;
    return weights;
}

RM_FN double material(const Rules *rules, const Position *pos, const Trial *t,
                      const HeuristicWeights *weights) {
    const int extra = weights->skunk, n = t->after.n, me = pos->me;
    const uint32_t hand = t->result.hand[me];
    int bar = pos->my_bar + t->my_gain - pos->their_bar - t->their_gain;
    int my_out = pos->my_out + t->my_loss, their_out = pos->their_out + t->their_loss;
    if (extra) { /* skunks have extra points */
        bar += extra * skunks_in_bar(rules, pos, t);
        my_out += extra * (pos->skunk_out_mine + skunks_lost(pos, t, 1));
        their_out += extra * (pos->skunk_out_theirs + skunks_lost(pos, t, 0));
    }
    double sum = weights->bar * (double)bar;
    for (int i = 0; i < n; i++) {
        const double behind = (double)i / (double)n;
        const double weight = weights->front * (1.0 - behind) + 0.3 * behind;
        const int species = species_at(t->after.cards, i);
        const double points = (double)(card_points(species) + (species == SKUNK ? extra : 0));
        sum += is_mine(pos, t->after, i) ? weight * points : -(weight * points);
    }
    sum -= (1.0 - weights->aggression) * (double)my_out;
    sum += weights->aggression * (double)their_out;
    sum += 0.1 * (double)(set_points(hand) + (hand >> SKUNK & 1 ? extra : 0));
    return sum;
}

/* The place of the played card in the line after the turn, or -1. */
RM_FN int played_card_place(const Position *pos, const Trial *t) {
    const int card = pos->me << 4 | t->act.card;
    for (int i = 0; i < t->after.n; i++)
        if (card_at(t->after.cards, i) == card) return i;
    return -1;
}

RM_FN double species_term(const Position *pos, const Trial *t) {
    const int place = played_card_place(pos, t);
    switch (t->act.card) {
        case SKUNK:
            if (t->their_loss >= 5) return 3.0;
            if (t->their_loss >= 3) return 1.5;
            return t->their_loss == 0 && t->my_loss > 0 ? -2.0 : 0.0;
        case PARROT: {
            if (!t->act.as) return 0.0;
            const double points = (double)card_points(species_at(pos->line.cards, t->act.choice));
            return is_mine(pos, pos->line, t->act.choice) ? -0.5 * points : 0.5 * points;
        }
        case LION: return place == 0 ? 2.0 : 0.0;
        case MONKEY: return t->their_loss >= 4 ? 2.5 : 0.0;
        case SEAL: return t->my_gain > t->their_gain ? 1.5 : t->my_gain < t->their_gain ? -1.0 : 0.0;
        case SNAKE: {
            int points = 0;
            for (int i = 0; i < t->after.n && i < 2; i++)
                if (is_mine(pos, t->after, i)) points += card_points(species_at(t->after.cards, i));
            return t->tally.my_count > pos->tally.my_count ? 0.5 * (double)points : 0.0;
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

RM_FN double skunk_reaction(const Position *pos) {
    uint32_t remaining = species_in(pos->line) & ~(1u << SKUNK), strongest = 0;
    int net = 0;
    if (bits_in(remaining) < 2) return -1.5;
    for (int k = 0; k < 2; k++) {
        const uint32_t top = 1u << highest_bit(remaining);
        strongest |= top;
        remaining ^= top;
    }
    for (int i = 0; i < pos->line.n; i++) {
        const int species = species_at(pos->line.cards, i), points = card_points(species);
        if (strongest >> species & 1) net += is_mine(pos, pos->line, i) ? -points : points;
    }
    return net >= 4 ? 4.0 : net >= 2 ? 2.0 : net <= -2 ? -3.0 : 0.0;
}

RM_FN int their_lion_in_line(const Position *pos) {
    for (int i = 0; i < pos->line.n; i++)
        if (species_at(pos->line.cards, i) == LION && !is_mine(pos, pos->line, i)) return 1;
    return 0;
}

RM_FN double reaction(const Position *pos, const Trial *t) {
    switch (t->act.card) {
        case CROCODILE:
            if (species_in(pos->line) >> CHAMELEON & 1) return 5.0;
            return pos->their_unseen >> CHAMELEON & 1 ? -1.0 : 0.0;
        case SKUNK: return skunk_reaction(pos);
        case LION:
            if (their_lion_in_line(pos)) return -5.0;
            return pos->their_unseen >> LION & 1 ? -2.0 : 3.0;
        case PARROT: {
            if (!t->act.as) return 0.0;
            const int i = t->act.choice;
            const double points = (double)card_points(species_at(pos->line.cards, i));
            if (is_mine(pos, pos->line, i)) return -0.5 * points;
            return 0.3 * points + 2.0 * (1.0 - (double)i / (double)pos->line.n);
        }
        default: return 0.0;
    }
}

/* --- outcome bots --------------------------------------------------------------------------------------- */

typedef struct {
    double bar, their_bar, loss, their_loss, line, front, threats, parrot, skunk, monkey, early, late;
} OutcomeWeights;

RM_FN OutcomeWeights outcome_weights(int bot) {
    const OutcomeWeights outcome = {3.0, -2.0, -2.5, 2.0, 1.5, 2.0, 1.5, 0.4, 0.5, 15.0, 0.5, 0.3};
    const OutcomeWeights distilled = {4.2, -2.5, -3.5, 2.8, 1.8, 2.5, 2.2, 0.6, 0.7, 18.0, 0.6, 0.4};
    return bot == DISTILLED ? distilled : outcome;
}

RM_FN double outcome_score(const Position *pos, const Trial *t, const OutcomeWeights *w) {
    const int removed = pos->tally.threats - t->tally.threats, card = t->act.card;
    double sum = w->bar * (double)t->my_gain;
    sum += w->their_bar * (double)t->their_gain;
    sum += w->loss * (double)t->my_loss;
    sum += w->their_loss * (double)t->their_loss;
    sum += w->line * (t->tally.value - pos->tally.value);
    sum += t->tally.front ? w->front : 0.0;
    sum += w->threats * (double)(removed > 0 ? removed : 0);
    if (card == PARROT && t->act.as) {
        const int i = t->act.choice, species = species_at(pos->line.cards, i);
        const double points = (double)card_points(species);
        if (is_mine(pos, pos->line, i)) {
            sum += -0.8 * points;
        } else {
            sum += w->parrot * points;
            if (THREATS >> species & 1) sum += 1.5;
            if (RECURRING >> species & 1) sum += 1.0;
            sum += 0.5 * (1.0 - (double)i / (double)pos->line.n);
        }
    }
    if (card == SKUNK) sum += w->skunk * (double)(t->their_loss - t->my_loss);
    if (card == MONKEY) {
        if (t->tally.heavy < pos->tally.heavy) sum += w->monkey;
        if (pos->tally.monkeys) sum += 0.8 * w->monkey;
    }
    if ((RECURRING >> card & 1) && pos->seen <= 3) sum += w->early;
    if ((card == PARROT || card == SKUNK || card == CROCODILE) && pos->seen >= 8) sum += w->late;
    return sum;
}

/* --- decisions ------------------------------------------------------------------------------------------ */

/* The random key of a bot's decision; with a purpose it determines every random number. */
typedef struct { uint64_t key; uint32_t game, stream; uint64_t step; } BotKey;

RM_FN rm_quad bot_random(const BotKey *c, uint32_t purpose) {
    return rm_philox(c->key, c->game, (uint32_t)c->step, c->stream | purpose << 8, (uint32_t)(c->step >> 32));
}

/* A standard normal number (Box and Muller 1958); libm's logarithm and cosine, as in Python. Those of a GPU may differ in
 * the last place: then only a difference of scores within 1e-15 of TIE_MARGIN leads to another decision. */
RM_LARGE_FN double bot_normal(const BotKey *c, int action) {
    const rm_quad random = bot_random(c, (uint32_t)action + 1);
    const double u = ((double)random.w[0] + 0.5) * (1.0 / 4294967296.0);
    const double v = ((double)random.w[1] + 0.5) * (1.0 / 4294967296.0);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Weight of an action in a tie. With earlier_rules a chameleon counts once per animal that it can copy. */
RM_FN int tie_weight(const Rules *rules, Line line, int action) {
    const Act act = decode_action(action);
    int count = 0;
    if (!rules->earlier_rules || act.card != CHAMELEON) return 1;
    for (int i = 0; i < line.n; i++) count += species_at(line.cards, i) == act.as;
    return count;
}

/* Sample one of the candidates by tie weight, with 32 random bits. */
RM_FN int sample_weighted(const Rules *rules, Line line, uint64_t candidates, uint32_t random) {
    int total = 0;
    for (uint64_t remaining = candidates; remaining; remaining &= remaining - 1)
        total += tie_weight(rules, line, lowest_bit(remaining));
    int index = (int)((uint64_t)random * (uint32_t)total >> 32);
    for (uint64_t remaining = candidates;; remaining &= remaining - 1) {
        const int action = lowest_bit(remaining);
        index -= tie_weight(rules, line, action);
        if (index < 0) return action;
    }
}

/* Write a bot's score of every legal action; returns the actions within TIE_MARGIN of the best. */
RM_FN uint64_t score_actions(const Rules *rules, const Table *table, int bot, const BotKey *bot_key,
                             double *score) {
    const uint64_t all = legal(rules, table);
    const HeuristicWeights weights = heuristic_weights(rules, bot);
    const OutcomeWeights outcome = outcome_weights(bot);
    double best = -1e30;
    uint64_t candidates = 0;
    if (bot == RANDOM) return all;
    const Position pos = position_of(rules, table);
    for (uint64_t remaining = all; remaining; remaining &= remaining - 1) {
        const int action = lowest_bit(remaining);
        const Trial t = try_action(rules, &pos, action);
        double sum;
        if (bot >= OUTCOME) {
            sum = outcome_score(&pos, &t, &outcome);
        } else {
            sum = material(rules, &pos, &t, &weights);
            sum += bot == ONLINE ? reaction(&pos, &t) : species_term(&pos, &t);
            if (bot == NOISY) sum += NOISE_SIGMA * bot_normal(bot_key, action);
        }
        score[action] = sum;
        if (sum > best) best = sum;
    }
    for (uint64_t remaining = all; remaining; remaining &= remaining - 1) {
        const int action = lowest_bit(remaining);
        if (best - score[action] < TIE_MARGIN) candidates |= (uint64_t)1 << action;
    }
    return candidates;
}

RM_LARGE_FN int decide(const Rules *rules, const Table *table, int bot, const BotKey *bot_key) {
    double score[ACTIONS];
    const uint64_t candidates = score_actions(rules, table, bot, bot_key, score);
    if (!(candidates & (candidates - 1))) return lowest_bit(candidates);
    return sample_weighted(rules, line_of(table), candidates, bot_random(bot_key, 0).w[0]);
}

#endif
