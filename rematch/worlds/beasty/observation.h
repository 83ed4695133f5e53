/* What a seat sees of a game (card-game specification, section 3), what a critic may see besides, and how the
 * cards that a seat cannot see are dealt anew. Players are counted from the seat: 0 is itself, 1 who plays next. */
#ifndef REMATCH_BEASTY_SIGHT_H
#define REMATCH_BEASTY_SIGHT_H

#include "rules.h"

enum { CARD_SETS = 3, COUNTS = 5 }; /* per player: unseen, bar, THAT'S IT; the numbers of see_counts */

/* --- sets that follow from the table -------------------------------------------------------------------- */

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

/* Who stands at each place: 0 nobody, else 1 + 12 * player + species - 1, a thing to look up. */
RM_FN void see_line(const Rules *rules, const Table *table, int seat, float *out) {
    for (int i = 0; i < PLACES; i++) {
        const int card = table->line[i], away = (card >> 4) - seat;
        out[i] = card ? (float)(SPECIES * (away < 0 ? away + rules->players : away) + (card & 15)) : 0.0f;
    }
}

/* Every player's cards by where they lie: the same for all who look. */
typedef struct { uint32_t hand, deck, bar, out; } Cards;

RM_FN void sort_cards(const Rules *rules, const Table *table, Cards *cards) {
    const Line line = line_of(table);
    for (int p = 0; p < rules->players; p++) {
        const Cards own = {table->hand[p], deck_set(table->deck[p]), table->bar[p], 0};
        cards[p] = own;
        cards[p].out = ALL_CARDS & ~(own.hand | own.deck | own.bar | line_set(line, p));
    }
}

/* Sets as bits: the own hand; for every player what is unseen of it (of the seat itself: the deck), what is in
 * the bar, what is out. */
RM_FN void see_cards(const Rules *rules, const Cards *cards, int seat, float *out) {
    out = write_set(out, cards[seat].hand);
    for (int ahead = 0; ahead < rules->players; ahead++) {
        const Cards *of = cards + other_player(rules, seat, ahead);
        out = write_set(out, ahead ? of->hand | of->deck : of->deck);
        out = write_set(out, of->bar);
        out = write_set(out, of->out);
    }
}

/* Shares of the most there can be: for every player points, animals in the bar, deck and hand, whether it is
 * to play; then animals in line and turns to come. */
RM_FN void see_counts(const Rules *rules, const Table *table, const Cards *cards, int seat, float *out) {
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

/* For a critic while training, never for an actor: the others' hands as bits, and everybody's next card as a
 * thing to look up (0: the deck is empty). */
RM_FN void see_hidden(const Rules *rules, const Table *table, int seat, float *hands, float *next) {
    for (int ahead = 0; ahead < rules->players; ahead++) {
        const int p = other_player(rules, seat, ahead);
        if (ahead) hands = write_set(hands, table->hand[p]);
        next[ahead] = (float)(table->deck[p] & 15);
    }
}

/* --- dealing anew what a seat cannot see ---------------------------------------------------------------- */

/* A short stream of random numbers (splitmix64): whoever needs few calls Philox, a search needs millions. */
typedef struct { uint64_t at; } Luck;

RM_FN uint64_t luck_word(Luck *luck) {
    uint64_t z = luck->at += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

RM_FN int luck_below(Luck *luck, int count) { return (int)((luck_word(luck) >> 32) * (uint32_t)count >> 32); }

/* Another table that the seat cannot tell from this one: the order of its own deck, the others' hands and decks
 * drawn anew from their unseen sets. Looks at sets and sizes only. */
RM_FN void completed(const Rules *rules, Table *table, int seat, Luck *luck) {
    for (int p = 0; p < rules->players; p++) {
        const int in_hand = p == seat ? 0 : bits_in(table->hand[p]);
        uint32_t left = deck_set(table->deck[p]) | (p == seat ? 0 : table->hand[p]), deck = 0, hand = 0;
        int cards[SPECIES], count = 0;
        for (; left; left &= left - 1) cards[count++] = lowest_bit(left);
        for (int k = 0; k < count; k++) {
            const int at = k + luck_below(luck, count - k), card = cards[at];
            cards[at] = cards[k];
            if (k < in_hand) hand |= 1u << card;
            else deck |= (uint32_t)card << 4 * (k - in_hand);
        }
        if (p != seat) table->hand[p] = (uint16_t)hand;
        table->deck[p] = deck;
    }
}

#endif
