/* The rules of Beasty Bar: structs, deal, legal actions, one turn, end and score (docs/reference/beasty.md).
 * Quoted comments are the text of the rules. Plain C99, no allocation, no globals; also compiles as CUDA C.
 *
 * A species is its strength, 1 to 12. A set of one player's cards has bit s for species s. During a turn the
 * line is a 64-bit word with one byte per place, starting at the gate: owner << 4 | species, 0 where empty.
 * reference/rules.py is a slow, readable version of this file. */
#ifndef REMATCH_BEASTY_RULES_H
#define REMATCH_BEASTY_RULES_H

#include "random.h"

#ifdef __CUDACC_RTC__
typedef unsigned short uint16_t;
#endif

enum { SKUNK = 1, PARROT, KANGAROO, MONKEY, CHAMELEON, SEAL, ZEBRA, GIRAFFE, SNAKE, CROCODILE, HIPPO, LION };
enum { MOST_PLAYERS = 4, SPECIES = 12, DECK = 8, PLACES = 4, ALL_CARDS = 0x1FFE };
enum { POINTS = 0, COUNT = 1 }; /* scorings */
enum { RUNNING = 0, DECIDED = 1 };

/* Action ids: nine species without a choice, then those with one. */
enum { KANGAROO_0 = 9, PARROT_NONE = 12, PARROT_0 = 13, CHAMELEON_NONE = 17, AS_PLAIN = 18, AS_KANGAROO_1 = 27,
       AS_PARROT_0 = 29, ACTIONS = 33 };

#define GAME_MARK 0x31594542u /* "BEY1": change it when the lists below change */
#define RECURRING (1u << GIRAFFE | 1u << CROCODILE | 1u << HIPPO)

typedef int32_t rm_flag; /* a bool of Config */

/* The fields of `Config` in config.py, which documents them. */
#define BEASTY_RULES(FIELD) \
    FIELD(int32_t, players) FIELD(int32_t, scoring) FIELD(rm_flag, earlier_rules) FIELD(int32_t, first)

/* The cards on the table: 40 bytes. THAT'S IT holds the cards that are in no other place. */
#define BEASTY_TABLE(FIELD) \
    FIELD(uint32_t, deck, MOST_PLAYERS) /* four bits per card, the next card lowest; 0 after the last */ \
    FIELD(uint16_t, hand, MOST_PLAYERS) /* sets of cards */ \
    FIELD(uint16_t, bar, MOST_PLAYERS) \
    FIELD(uint8_t, line, PLACES) /* from the gate */ \
    FIELD(uint8_t, turn, 1)      /* player to move */ \
    FIELD(uint8_t, step, 1)      /* turns played */

/* Further members of a game in a batch. */
#define BEASTY_KEPT(FIELD) \
    FIELD(uint64_t, seed, 1) /* random key of the episode, with `episode` */ \
    FIELD(uint32_t, episode, 1) \
    FIELD(int32_t, slot, MOST_PLAYERS) /* slots of the seated players; the rules do not read them */ \
    FIELD(uint32_t, mark, 1) /* GAME_MARK: identifies the bytes of a game */

#define RULE_MEMBER(type, name) type name;
#define GAME_MEMBER(type, name, length) type name[length];
typedef struct { BEASTY_RULES(RULE_MEMBER) } Rules;
typedef struct { BEASTY_TABLE(GAME_MEMBER) } Table;
typedef struct { Table table; BEASTY_KEPT(GAME_MEMBER) } Game;

/* --- cards, sets and actions --------------------------------------------------------------------------- */

RM_FN int card_points(int species) { return (int)(0x2232342334440u >> 4 * species & 15); }

#ifdef __CUDACC__
RM_FN int bits_in(uint32_t set) { return __popc(set); }
RM_FN int bits_in_word(uint64_t set) { return __popcll(set); }
RM_FN int lowest_bit(uint64_t word) { return __ffsll((long long)word) - 1; }
RM_FN int highest_bit(uint64_t word) { return 63 - __clzll((long long)word); }
#else
RM_FN int bits_in(uint32_t set) { return __builtin_popcount(set); }
RM_FN int bits_in_word(uint64_t set) { return __builtin_popcountll(set); }
RM_FN int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
RM_FN int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }
#endif

/* Points of a set: two per card, but three or four for the listed species. */
RM_FN int set_points(uint32_t set) {
    const uint32_t four = 1u << SKUNK | 1u << PARROT | 1u << KANGAROO | 1u << ZEBRA;
    const uint32_t three = 1u << MONKEY | 1u << CHAMELEON | 1u << GIRAFFE | 1u << CROCODILE;
    return 2 * bits_in(set) + bits_in(set & (three | four)) + bits_in(set & four);
}

/* The nine species without a choice, as bits 0 to 8: skunk, monkey, seal, zebra, giraffe, snake, crocodile,
 * hippo, lion. */
RM_FN uint32_t plain_bits(uint32_t set) { return (set >> 1 & 1) | (set >> 3 & 2) | (set >> 4 & 0x1FC); }

/* An action: the card played, the species whose effect it has (0: none), and the choice: number of animals
 * that a kangaroo hops over, or place of the parrot's target. */
typedef struct { uint8_t card, as, choice; } Act;

RM_FN Act decode_action(int action) {
    static const Act acts[ACTIONS] = {
        {1, 1, 0}, {4, 4, 0}, {6, 6, 0}, {7, 7, 0}, {8, 8, 0}, {9, 9, 0}, {10, 10, 0}, {11, 11, 0}, {12, 12, 0},
        {3, 3, 0}, {3, 3, 1}, {3, 3, 2}, {2, 0, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 2}, {2, 2, 3},
        {5, 0, 0}, {5, 1, 0}, {5, 4, 0}, {5, 6, 0}, {5, 7, 0}, {5, 8, 0}, {5, 9, 0}, {5, 10, 0}, {5, 11, 0},
        {5, 12, 0}, {5, 3, 1}, {5, 3, 2}, {5, 2, 0}, {5, 2, 1}, {5, 2, 2}, {5, 2, 3}};
    return acts[action];
}

/* --- the line ------------------------------------------------------------------------------------------- */

typedef struct { uint64_t cards; int n; } Line;

RM_FN uint64_t below_place(int place) { return ((uint64_t)1 << 8 * place) - 1; }
RM_FN int card_at(uint64_t cards, int place) { return (int)(cards >> 8 * place & 255); }
RM_FN int species_at(uint64_t cards, int place) { return (int)(cards >> 8 * place & 15); }

RM_FN Line line_of(const Table *table) {
    Line line;
    line.cards = (uint64_t)table->line[0] | (uint64_t)table->line[1] << 8 | (uint64_t)table->line[2] << 16
               | (uint64_t)table->line[3] << 24;
    line.n = line.cards ? highest_bit(line.cards) / 8 + 1 : 0;
    return line;
}

RM_FN uint32_t species_in(Line line) {
    uint32_t set = 0;
    for (int i = 0; i <= PLACES; i++) set |= 1u << species_at(line.cards, i);
    return set & ALL_CARDS; /* an empty place has species 0 */
}

RM_FN uint64_t remove_at(uint64_t cards, int place) {
    return (cards & below_place(place)) | (cards >> 8 & ~below_place(place));
}

RM_FN uint64_t insert_at(uint64_t cards, int place, int card) {
    return (cards & below_place(place)) | (uint64_t)card << 8 * place | (cards & ~below_place(place)) << 8;
}

RM_FN Line move_card(Line line, int from, int to) {
    int card = card_at(line.cards, from);
    line.cards = insert_at(remove_at(line.cards, from), to, card);
    return line;
}

/* Remove all animals of these species, except the one at place `spared` (-1: no exception). */
RM_FN Line remove_species(Line line, uint32_t species, int spared) {
    Line remaining = {0, 0};
    for (int i = 0; i < line.n; i++) {
        if ((species >> species_at(line.cards, i) & 1) && i != spared) continue;
        remaining.cards |= (uint64_t)card_at(line.cards, i) << 8 * remaining.n++;
    }
    return remaining;
}

/* The place behind the last animal ahead of `place` that is a zebra or has at least this strength. */
RM_FN int stop_place(Line line, int place, int strength) {
    const uint64_t ones = 0x0101010101010101u, flag = ones << 4, species = line.cards & ones * 15;
    const uint64_t strong = species + ones * (uint64_t)(16 - strength); /* bit 4 of a byte: strong enough */
    const uint64_t not_zebra = (species ^ ones * ZEBRA) + ones * 15;
    const uint64_t stops = (strong | ~not_zebra) & flag & below_place(place);
    return stops ? highest_bit(stops) / 8 + 1 : 0;
}

/* --- effects of the animals ----------------------------------------------------------------------------- */

/* "moves forward past every strictly weaker animal; stops behind zebra, lion or hippo" */
RM_FN Line hippo(Line line, int *place) {
    int to = stop_place(line, *place, HIPPO);
    line = move_card(line, *place, to);
    *place = to;
    return line;
}

/* "eats each strictly weaker animal directly ahead, one after another; stops at a zebra or strength >= 10" */
RM_FN Line crocodile(Line line, int *place) {
    int to = stop_place(line, *place, CROCODILE);
    line.cards = (line.cards & below_place(to)) | line.cards >> 8 * *place << 8 * to;
    line.n -= *place - to;
    *place = to;
    return line;
}

/* "hops over exactly one directly preceding strictly weaker animal"; also over a zebra */
RM_FN Line giraffe(Line line, int *place) {
    if (*place > 0 && species_at(line.cards, *place - 1) < GIRAFFE) {
        line = move_card(line, *place, *place - 1);
        *place -= 1;
    }
    return line;
}

/* "sorts the line, strongest first; equal strengths keep their order; itself included", with strength 9 */
RM_FN Line snake(Line line, int self) {
    Line sorted = {0, 0};
    for (int i = 0; i < line.n; i++) {
        int strength = i == self ? SNAKE : species_at(line.cards, i), at = 0;
        for (int j = 0; j < i; j++) at += (j == self ? SNAKE : species_at(line.cards, j)) >= strength;
        for (int j = i + 1; j < line.n; j++) at += (j == self ? SNAKE : species_at(line.cards, j)) > strength;
        sorted.cards |= (uint64_t)card_at(line.cards, i) << 8 * at;
    }
    sorted.n = line.n;
    return sorted;
}

/* "hippos and crocodiles are out, the played monkey goes first, other monkeys behind it in reversed order, the
 * rest keep theirs" */
RM_FN Line monkey(Line line, int self) {
    const int card = card_at(line.cards, self);
    line.cards = remove_at(line.cards, self);
    line.n -= 1;
    if (!(species_in(line) >> MONKEY & 1)) { /* no other monkey: no effect */
        line.cards = insert_at(line.cards, self, card);
        line.n += 1;
        return line;
    }
    line = remove_species(line, 1u << HIPPO | 1u << CROCODILE, -1);
    Line others = remove_species(line, 1u << MONKEY, -1), out = {(uint64_t)card, 1};
    for (int i = line.n - 1; i >= 0; i--)
        if (species_at(line.cards, i) == MONKEY) out.cards |= (uint64_t)card_at(line.cards, i) << 8 * out.n++;
    out.cards |= others.cards << 8 * out.n;
    out.n += others.n;
    return out;
}

/* "all animals of the two strongest species in line (of the only one, if there is one) out; skunks neither
 * count nor leave", nor does a chameleon that acts as a skunk */
RM_FN Line skunk(Line line, int self) {
    Line others = {remove_at(line.cards, self), line.n - 1};
    uint32_t remaining = species_in(others) & ~(1u << SKUNK), strongest = 0;
    for (int k = 0; k < 2 && remaining; k++) {
        uint32_t top = 1u << highest_bit(remaining);
        strongest |= top;
        remaining ^= top;
    }
    return remove_species(line, strongest, self);
}

/* Step 2 of a turn: the animal just placed at the back has the effect of species `as`. */
RM_FN Line apply_effect(Line line, int as, int choice) {
    int self = line.n - 1;
    switch (as) {
        case LION: { /* "another lion in line: this lion is out and nothing else happens" */
            Line others = {line.cards & below_place(self), self};
            if (species_in(others) >> LION & 1) return others;
            others = remove_species(others, 1u << MONKEY, -1);
            Line first = {others.cards << 8 | (uint64_t)card_at(line.cards, self), others.n + 1};
            return first;
        }
        case HIPPO: return hippo(line, &self);
        case CROCODILE: return crocodile(line, &self);
        case GIRAFFE: return giraffe(line, &self);
        case SNAKE: return snake(line, self);
        case SEAL: { /* "reverses the line, itself included" */
            uint64_t cards = 0;
            for (int i = 0; i < line.n; i++) cards = cards << 8 | (uint64_t)card_at(line.cards, i);
            line.cards = cards;
            return line;
        }
        case MONKEY: return monkey(line, self);
        case KANGAROO: return move_card(line, self, self - choice);
        case PARROT: {
            Line remaining = {remove_at(line.cards, choice), line.n - 1};
            return remaining;
        }
        case SKUNK: return skunk(line, self);
        default: return line; /* zebra, or no effect */
    }
}

RM_FN Line apply_recurring(Line line, int *place) {
    switch (species_at(line.cards, *place)) {
        case HIPPO: return hippo(line, place);
        case CROCODILE: return crocodile(line, place);
        default: return giraffe(line, place);
    }
}

/* Step 3: "each surviving recurring animal acts at most once, in the order of the line when the phase starts;
 * the card just played does not recur". */
RM_FN Line recurring_phase(Line line, int played) {
    int actors[PLACES + 1], count = 0;
    for (int i = 0; i < line.n; i++) {
        int card = card_at(line.cards, i);
        if ((RECURRING >> (card & 15) & 1) && card != played) actors[count++] = card;
    }
    for (int k = 0; k < count; k++)
        for (int i = 0; i < line.n; i++)
            if (card_at(line.cards, i) == actors[k]) {
                line = apply_recurring(line, &i);
                break;
            }
    return line;
}

/* Step 3 with earlier_rules, by place: after an animal has acted and stands at place t, place t + 1 is
 * next. The card just played recurs if it is a hippo or crocodile, not if it is a giraffe. */
RM_FN Line recurring_phase_by_place(Line line, int played) {
    for (int i = 0; i < line.n; i++) {
        int card = card_at(line.cards, i), species = card & 15;
        if ((RECURRING >> species & 1) && !(species == GIRAFFE && card == played))
            line = apply_recurring(line, &i);
    }
    return line;
}

/* --- a turn --------------------------------------------------------------------------------------------- */

/* The legal actions of the player to move, bit a for action a. */
RM_FN uint64_t legal(const Rules *rules, const Table *table) {
    const Line line = line_of(table);
    const uint32_t hand = table->hand[table->turn[0]];
    const uint64_t places = ((uint64_t)1 << line.n) - 1, none = !rules->earlier_rules;
    const uint64_t hops = line.n == 0 ? 1 : line.n == 1 ? 2 : 6; /* hops over 0; over 1; over 1 or 2 */
    uint64_t mask = plain_bits(hand);
    if (hand >> KANGAROO & 1) mask |= hops << KANGAROO_0;
    if (hand >> PARROT & 1) mask |= line.n ? places << PARROT_0 : none << PARROT_NONE;
    if (hand >> CHAMELEON & 1) {
        const uint32_t in_line = species_in(line) & ~(1u << CHAMELEON);
        if (!in_line) mask |= none << CHAMELEON_NONE;
        mask |= (uint64_t)plain_bits(in_line) << AS_PLAIN;
        if (in_line >> KANGAROO & 1) mask |= hops >> 1 << AS_KANGAROO_1;
        if (in_line >> PARROT & 1) mask |= places << AS_PARROT_0;
    }
    return mask;
}

/* Steps 1 to 4 of a turn: place the card, its effect, the recurring animals, five in line. */
RM_FN void play_card(const Rules *rules, Table *table, int action) {
    const Act act = decode_action(action);
    const int player = table->turn[0], card = player << 4 | act.card;
    Line line = line_of(table);
    table->hand[player] &= (uint16_t) ~(1u << act.card);
    line.cards |= (uint64_t)card << 8 * line.n++;
    line = apply_effect(line, act.as, act.choice);
    line = rules->earlier_rules ? recurring_phase_by_place(line, card) : recurring_phase(line, card);
    if (line.n > PLACES) { /* "the first two enter the bar, the last goes to THAT'S IT, the rest stay" */
        for (int i = 0; i < 2; i++)
            table->bar[card_at(line.cards, i) >> 4] |= (uint16_t)(1u << species_at(line.cards, i));
        line.cards = line.cards >> 16 & 0xFFFF;
    }
    for (int i = 0; i < PLACES; i++) table->line[i] = (uint8_t)(line.cards >> 8 * i);
}

/* Step 5: draw a card; then the next player is to move. */
RM_FN void draw_card(const Rules *rules, Table *table) {
    const int player = table->turn[0];
    table->hand[player] |= (uint16_t)(1u << (table->deck[player] & 15) & ALL_CARDS); /* empty deck: card 0 */
    table->deck[player] >>= 4;
    table->turn[0] = (uint8_t)(player + 1 == rules->players ? 0 : player + 1);
    table->step[0] += 1;
}

RM_FN void turn(const Rules *rules, Table *table, int action) {
    play_card(rules, table, action);
    draw_card(rules, table);
}

/* "as soon as queue + hands + decks < 5" */
RM_FN int has_ended(const Rules *rules, const Table *table) {
    return line_of(table).n + SPECIES * rules->players - table->step[0] < 5;
}

/* --- the deal, the score -------------------------------------------------------------------------------- */

/* Shuffle one player's cards with 64 random bits: four go to the hand, eight to the deck. The bits are scaled
 * to a number below 12!, whose digits select the cards; the bias is less than one part in 2^35. */
RM_FN void deal(Table *table, int player, uint64_t random) {
    const uint32_t orders = 479001600u;
    uint32_t number = (uint32_t)(((random >> 32) * orders + ((random & 0xFFFFFFFFu) * orders >> 32)) >> 32);
    uint64_t cards = 0xCBA987654321u;
    table->hand[player] = 0;
    table->deck[player] = 0;
    for (int k = 0; k < SPECIES; k++) {
        const uint32_t remaining = (uint32_t)(SPECIES - k), at = 4 * (number % remaining);
        const uint32_t card = (uint32_t)(cards >> at & 15);
        const uint64_t before = ((uint64_t)1 << at) - 1;
        number /= remaining;
        cards = (cards & before) | (cards >> 4 & ~before);
        if (k < SPECIES - DECK) table->hand[player] |= (uint16_t)(1u << card);
        else table->deck[player] |= card << 4 * (k - (SPECIES - DECK));
    }
}

RM_FN void reset(const Rules *rules, Table *table, uint64_t seed, uint32_t episode) {
    const Table empty = {{0}, {0}, {0}, {0}, {0}, {0}};
    *table = empty;
    for (int player = 0; player < rules->players; player += 2) {
        rm_quad random = rm_philox(seed, episode, (uint32_t)player, RM_STREAM_RESET, 0);
        deal(table, player, (uint64_t)random.w[0] << 32 | random.w[1]);
        if (player + 1 < rules->players) deal(table, player + 1, (uint64_t)random.w[2] << 32 | random.w[3]);
    }
    if (rules->first >= 0) {
        table->turn[0] = (uint8_t)rules->first;
    } else {
        uint64_t random = rm_philox(seed, episode, MOST_PLAYERS, RM_STREAM_RESET, 0).w[0];
        table->turn[0] = (uint8_t)(random * (uint32_t)rules->players >> 32);
    }
}

/* Final score: points, or number of animals with points as tie-break. */
RM_FN int score_of(const Rules *rules, const Table *table, int player) {
    const uint32_t bar = table->bar[player];
    return set_points(bar) + (rules->scoring == COUNT ? 64 * bits_in(bar) : 0);
}

/* Outcomes: 1 for the winner, 0.5 for all players who share the best score, else 0. Rewards: +1 for the
 * winner, -1 / (players - 1) for the others, shared like the outcome; they sum to zero. */
RM_FN void final_result(const Rules *rules, const Table *table, float *outcome, float *reward) {
    int score[MOST_PLAYERS] = {0}, best = 0, sharing = 0;
    for (int p = 0; p < rules->players; p++) {
        score[p] = score_of(rules, table, p);
        if (score[p] > best || p == 0) best = score[p];
    }
    for (int p = 0; p < rules->players; p++) sharing += score[p] == best;
    for (int p = 0; p < rules->players; p++) {
        const float n = (float)rules->players, share = score[p] == best ? 1.0f / (float)sharing : 0.0f;
        outcome[p] = score[p] != best ? 0.0f : sharing > 1 ? 0.5f : 1.0f;
        reward[p] = sharing == rules->players ? 0.0f : (share * n - 1.0f) / (n - 1.0f);
    }
}

#endif
