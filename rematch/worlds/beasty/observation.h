/* Observations of a seat, privileged observations for a critic, and resampling of hidden cards. Players are
 * numbered relative to the seat: 0 is the seat itself, 1 the player after it. */
#ifndef REMATCH_BEASTY_SIGHT_H
#define REMATCH_BEASTY_SIGHT_H

#include "rules.h"

enum { CARD_SETS = 3, COUNTS = 5 }; /* per player: unseen, bar, THAT'S IT; numbers of write_counts */

/* --- sets of cards -------------------------------------------------------------------------------------- */

RM_FN uint32_t deck_set(uint32_t deck) {
    uint32_t set = 0;
    for (int k = 0; k < DECK; k++) set |= 1u << (deck >> 4 * k & 15);
    return set & ALL_CARDS;
}

RM_FN int deck_size(uint32_t deck) { return deck ? highest_bit(deck) / 4 + 1 : 0; }

RM_FN uint32_t line_set(Line line, int player) {
    uint32_t set = 0;
    for (int i = 0; i <= PLACES; i++)
        if (card_at(line.cards, i) >> 4 == player) set |= 1u << species_at(line.cards, i);
    return set & ALL_CARDS;
}

/* --- the fields ----------------------------------------------------------------------------------------- */

RM_FN float *write_set(float *out, uint32_t set) {
    for (int s = 0; s < SPECIES; s++) out[s] = (float)(set >> (s + 1) & 1);
    return out + SPECIES;
}

RM_FN int other_player(const Rules *rules, int seat, int ahead) {
    const int player = seat + ahead;
    return player >= rules->players ? player - rules->players : player;
}

/* The animal at each place as a category: 0 for none, else 1 + 12 * player + species - 1. */
RM_FN void write_line(const Rules *rules, const Table *table, int seat, float *out) {
    for (int i = 0; i < PLACES; i++) {
        const int card = table->line[i], away = (card >> 4) - seat;
        out[i] = card ? (float)(SPECIES * (away < 0 ? away + rules->players : away) + (card & 15)) : 0.0f;
    }
}

/* The cards of a player by location. */
typedef struct { uint32_t hand, deck, bar, out; } Cards;

RM_FN void sort_cards(const Rules *rules, const Table *table, Cards *cards) {
    const Line line = line_of(table);
    for (int p = 0; p < rules->players; p++) {
        const Cards sets = {table->hand[p], deck_set(table->deck[p]), table->bar[p], 0};
        cards[p] = sets;
        cards[p].out = ALL_CARDS & ~(sets.hand | sets.deck | sets.bar | line_set(line, p));
    }
}

/* Sets as bits: the seat's hand; for every player the unseen cards (for the seat itself: its deck), the bar and
 * THAT'S IT. */
RM_FN void write_cards(const Rules *rules, const Cards *cards, int seat, float *out) {
    out = write_set(out, cards[seat].hand);
    for (int ahead = 0; ahead < rules->players; ahead++) {
        const Cards *player_cards = cards + other_player(rules, seat, ahead);
        out = write_set(out, ahead ? player_cards->hand | player_cards->deck : player_cards->deck);
        out = write_set(out, player_cards->bar);
        out = write_set(out, player_cards->out);
    }
}

/* Counts divided by their maximum. For every player: points, animals in the bar, deck, hand, whether it is to
 * move; then animals in line and remaining turns. */
RM_FN void write_counts(const Rules *rules, const Table *table, const Cards *cards, int seat, float *out) {
    const int turns = SPECIES * rules->players;
    for (int ahead = 0; ahead < rules->players; ahead++, out += COUNTS) {
        const int p = other_player(rules, seat, ahead);
        out[0] = (float)set_points(cards[p].bar) * (1.0f / 36.0f);
        out[1] = (float)bits_in(cards[p].bar) * (1.0f / 12.0f);
        out[2] = (float)bits_in(cards[p].deck) * (1.0f / 8.0f);
        out[3] = (float)bits_in(cards[p].hand) * (1.0f / 4.0f);
        out[4] = (float)(table->turn[0] == p);
    }
    out[0] = (float)line_of(table).n * (1.0f / 4.0f);
    out[1] = (float)(turns - table->step[0]) / (float)turns;
}

/* Privileged observation, for a critic: the hands of the other players as bits, and the next card of every
 * player as a category (0: the deck is empty). */
RM_FN void write_privileged(const Rules *rules, const Table *table, int seat, float *hands, float *next) {
    for (int ahead = 0; ahead < rules->players; ahead++) {
        const int p = other_player(rules, seat, ahead);
        if (ahead) hands = write_set(hands, table->hand[p]);
        next[ahead] = (float)(table->deck[p] & 15);
    }
}

/* --- resampling hidden cards ---------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea and Flood 2014), for the millions of random numbers of a search. */
typedef struct { uint64_t state; } SplitMix;

RM_FN uint64_t splitmix_next(SplitMix *generator) {
    uint64_t z = generator->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

RM_FN int splitmix_below(SplitMix *generator, int count) {
    return (int)((splitmix_next(generator) >> 32) * (uint32_t)count >> 32);
}

/* Resample the cards that the seat cannot see: the order of its own deck, the hands and decks of the others.
 * Reads only sets and sizes that the seat knows. */
RM_FN void redeal_hidden(const Rules *rules, Table *table, int seat, SplitMix *generator) {
    for (int p = 0; p < rules->players; p++) {
        const int in_hand = p == seat ? 0 : bits_in(table->hand[p]);
        uint32_t remaining = deck_set(table->deck[p]) | (p == seat ? 0 : table->hand[p]), deck = 0, hand = 0;
        int cards[SPECIES], count = 0;
        for (; remaining; remaining &= remaining - 1) cards[count++] = lowest_bit(remaining);
        for (int k = 0; k < count; k++) {
            const int at = k + splitmix_below(generator, count - k), card = cards[at];
            cards[at] = cards[k];
            if (k < in_hand) hand |= 1u << card;
            else deck |= (uint32_t)card << 4 * (k - in_hand);
        }
        if (p != seat) table->hand[p] = (uint16_t)hand;
        table->deck[p] = deck;
    }
}

#endif
