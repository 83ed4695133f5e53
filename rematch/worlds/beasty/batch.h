/* Whole batches on the CPU, on one or more threads: steps, sights, players; and whether bytes are a game. */
#ifndef REMATCH_BEASTY_BATCH_H
#define REMATCH_BEASTY_BATCH_H

#include "search.h"
#include "thread_slices.h"

/* The arrays of a batch, game after game; k players, every one a seat. */
typedef struct {
    Game *games;
    const int32_t *action;        /* [N, k] only that of who is to play is read */
    float *line, *cards, *counts; /* [N, k, ...] */
    float *hands, *next;          /* [N, k, 12 (k - 1)], [N, k, k] aside */
    uint8_t *mask, *acting;       /* [N, k, ACTIONS], [N, k] */
    float *reward, *outcome;      /* [N, k] */
    uint8_t *ended;               /* [N] */
    int32_t *length;              /* [N] */
    const uint64_t *next_seed;    /* [N] what each game restarts from */
    const int32_t *next_slot;     /* [N, k] */
} Batch;

typedef struct { const Rules *rules; Batch *batch; int steps; uint64_t seed; } Whole; /* the last: strolls */

RM_FN int cards_seen(const Rules *rules) { return SPECIES * (1 + CARD_SETS * rules->players); }
RM_FN int counts_seen(const Rules *rules) { return COUNTS * rules->players + 2; }

static void see(const Rules *rules, const Batch *batch, int row) {
    const Table *table = &batch->games[row].table;
    const int k = rules->players, cards = cards_seen(rules), counts = counts_seen(rules);
    Cards lie[MOST_PLAYERS];
    sort_cards(rules, table, lie);
    for (int seat = 0; seat < k; seat++) {
        const long at = (long)row * k + seat;
        see_line(rules, table, seat, batch->line + at * PLACES);
        see_cards(rules, lie, seat, batch->cards + at * cards);
        see_counts(rules, table, lie, seat, batch->counts + at * counts);
        see_hidden(rules, table, seat, batch->hands + at * (SPECIES * (k - 1)), batch->next + at * k);
    }
}

/* Whose turn it is and what is legal; nothing is for the others. */
static void offer(const Rules *rules, const Batch *batch, int row) {
    const Table *table = &batch->games[row].table;
    const int k = rules->players;
    for (int seat = 0; seat < k; seat++) {
        const int acting = table->turn[0] == seat;
        const uint64_t all = acting ? legal(rules, table) : 0;
        uint8_t *mask = batch->mask + ((long)row * k + seat) * ACTIONS;
        batch->acting[row * (long)k + seat] = (uint8_t)acting;
        for (int a = 0; a < ACTIONS - 1; a++) mask[a] = (uint8_t)((uint32_t)all >> a & 1);
        mask[ACTIONS - 1] = (uint8_t)(all >> (ACTIONS - 1));
    }
}

static void restart(const Rules *rules, const Batch *batch, int row, uint32_t episode) {
    Game *game = batch->games + row;
    const Game empty = {{{0}, {0}, {0}, {0}, {0}, {0}}, {0}, {0}, {0}, {0}};
    *game = empty;
    game->mark[0] = GAME_MARK;
    game->seed[0] = batch->next_seed[row];
    game->episode[0] = episode;
    for (int s = 0; s < rules->players; s++) game->slot[s] = batch->next_slot[(long)row * rules->players + s];
    reset(rules, &game->table, game->seed[0], episode);
}

/* One turn of the game of this row; an ended game restarts; then all look. */
static void step_row(const Rules *rules, const Batch *batch, int row, int action) {
    Game *game = batch->games + row;
    const int k = rules->players;
    float *reward = batch->reward + (long)row * k, *outcome = batch->outcome + (long)row * k;
    turn(rules, &game->table, action);
    const int over = is_over(rules, &game->table);
    for (int s = 0; s < k; s++) reward[s] = outcome[s] = 0.0f;
    batch->ended[row] = (uint8_t)(over ? DECIDED : RUNNING);
    batch->length[row] = game->table.step[0];
    if (over) {
        judge(rules, &game->table, outcome, reward);
        restart(rules, batch, row, game->episode[0] + 1);
    }
    see(rules, batch, row);
    offer(rules, batch, row);
}

static Answer step_rows(const void *world, int from, int to) {
    const Whole *whole = (const Whole *)world;
    const Batch *batch = whole->batch;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const long mine = (long)row * whole->rules->players + batch->games[row].table.turn[0];
        step_row(whole->rules, batch, row, batch->action[mine]);
    }
    return fine;
}

/* The first game whose player's action is not legal, or FINE: looked for before anything moves. */
static int unsound_action(const Rules *rules, const Batch *batch, int games) {
    for (int row = 0; row < games; row++) {
        const Table *table = &batch->games[row].table;
        const int32_t action = batch->action[(long)row * rules->players + table->turn[0]];
        if ((uint32_t)action >= ACTIONS || !(legal(rules, table) >> action & 1)) return row;
    }
    return FINE;
}

static Answer step_all(const Rules *rules, Batch *batch, int games, int threads) {
    const Whole whole = {rules, batch, 1, 0};
    return in_shares(step_rows, &whole, games, threads);
}

static void start_all(const Rules *rules, Batch *batch, int games, uint32_t episode) {
    for (int row = 0; row < games; row++) {
        restart(rules, batch, row, episode);
        see(rules, batch, row);
        offer(rules, batch, row);
    }
}

/* --- players over rows ---------------------------------------------------------------------------------- */

typedef struct {
    const Rules *rules;
    const Game *games;
    const int32_t *number; /* [n] the games' numbers in the whole batch: random streams go by them */
    int bot[2], range[2]; /* who plays; who plays the others in a search */
    const uint64_t *among; /* [n] the actions to search, or NULL: all that are legal */
    Chance chance;   /* all but the game */
    double *score;   /* [n, ACTIONS] */
    int32_t *action; /* [n] */
    int plies;       /* of a leaf's playout */
    const int64_t *at; /* [n] where a row's leaves begin */
    Game *leaf;      /* [leaves] */
    float *leaf_worth; /* [leaves] of those that are over, for who searches */
    uint8_t *leaf_over; /* [leaves] */
} Asked;

static Answer decide_rows(const void *world, int from, int to) {
    const Asked *asked = (const Asked *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        Chance chance = asked->chance;
        chance.game = (uint32_t)asked->number[row];
        asked->action[row] = decide(asked->rules, &asked->games[row].table, asked->bot[0], &chance);
    }
    return fine;
}

static Answer score_rows(const void *world, int from, int to) {
    const Asked *asked = (const Asked *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        Chance chance = asked->chance;
        chance.game = (uint32_t)asked->number[row];
        double *score = asked->score + (long)row * ACTIONS;
        scored(asked->rules, &asked->games[row].table, asked->bot[0], &chance, score);
    }
    return fine;
}

static Deals deals_of(const Asked *asked, int row) {
    Chance chance = asked->chance;
    chance.game = (uint32_t)asked->number[row];
    const rm_quad random = chance_words(&chance, 0);
    const Deals deals = {(uint64_t)random.w[0] << 32 | random.w[1], asked->range[0], asked->range[1]};
    return deals;
}

static uint64_t among_of(const Asked *asked, int row) {
    const uint64_t all = legal(asked->rules, &asked->games[row].table);
    return asked->among ? all & asked->among[row] : all;
}

/* Sums over completions, and the best action; where there is no choice, nothing is searched. */
static Answer search_rows(const void *world, int from, int to) {
    const Asked *asked = (const Asked *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const Deals deals = deals_of(asked, row);
        const uint64_t among = among_of(asked, row);
        double *sum = asked->score + (long)row * ACTIONS;
        if (among & (among - 1)) search(asked->rules, &asked->games[row].table, among, asked->bot, &deals, sum);
        asked->action[row] = best_of(among, sum);
    }
    return fine;
}

/* What each action may be expected to bring, also where there is no choice. */
static Answer value_rows(const void *world, int from, int to) {
    const Asked *asked = (const Asked *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const Deals deals = deals_of(asked, row);
        const uint64_t among = among_of(asked, row);
        const Table *table = &asked->games[row].table;
        double *value = asked->score + (long)row * ACTIONS;
        for (uint64_t left = among; left; left &= left - 1) value[lowest_bit(left)] = 0.0;
        search(asked->rules, table, among, asked->bot, &deals, value);
        search_values(asked->rules, table, among, &deals, value);
        asked->action[row] = best_of(among, value);
    }
    return fine;
}

/* The positions `plies` turns after each action of each completion, for somebody else to value. */
static Answer leaf_rows(const void *world, int from, int to) {
    const Asked *asked = (const Asked *)world;
    const Rules *rules = asked->rules;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const Deals deals = deals_of(asked, row);
        const uint64_t among = among_of(asked, row);
        int64_t at = asked->at[row];
        for (int c = deals.from; c < deals.to; c++) {
            Game sample = asked->games[row];
            const Luck start = dealt(rules, &deals, c, &sample.table);
            for (uint64_t left = among; left; left &= left - 1, at++) {
                Game *leaf = asked->leaf + at;
                Luck luck = start;
                *leaf = sample;
                turn(rules, &leaf->table, lowest_bit(left));
                for (int ply = 0; ply < asked->plies && !is_over(rules, &leaf->table); ply++)
                    turn(rules, &leaf->table, hopeful(rules, &leaf->table, asked->bot[0], &luck));
                asked->leaf_over[at] = (uint8_t)is_over(rules, &leaf->table);
                if (asked->leaf_over[at])
                    asked->leaf_worth[at] = (float)worth(rules, &leaf->table, sample.table.turn[0]);
            }
        }
    }
    return fine;
}

/* --- whether bytes are a game --------------------------------------------------------------------------- */

RM_FN int sound_player(const Rules *rules, const Table *table, Line line, int p) {
    const int first = (table->turn[0] + SPECIES * rules->players - table->step[0]) % rules->players;
    const int turns = (table->step[0] + rules->players - 1 - (p - first + rules->players) % rules->players)
                    / rules->players;
    const int deck = deck_size(table->deck[p]), left = DECK - (turns < DECK ? turns : DECK);
    const uint32_t in_deck = deck_set(table->deck[p]), in_line = line_set(line, p), hand = table->hand[p];
    const uint32_t bar = table->bar[p], all = hand | in_deck | in_line | bar;
    const int together = bits_in(hand) + bits_in(in_deck) + bits_in(in_line) + bits_in(bar);
    return deck == left && bits_in(in_deck) == deck && bits_in(hand) == SPECIES - turns - left
        && !((hand | bar) & ~(uint32_t)ALL_CARDS) && bits_in(all) == together;
}

static int is_sound(const Rules *rules, const Game *game) {
    const Table *table = &game->table;
    const Line line = line_of(table);
    const int players = rules->players, step = table->step[0];
    int in_line = 0, entered = 0;
    if (game->mark[0] != GAME_MARK || table->turn[0] >= players || step >= SPECIES * players) return 0;
    for (int i = 0; i < PLACES; i++) {
        const int card = table->line[i], species = card & 15;
        if (i < line.n && (species < 1 || species > SPECIES || card >> 4 >= players)) return 0;
    }
    for (int p = 0; p < players; p++) {
        if (!sound_player(rules, table, line, p) || game->slot[p] < 0) return 0;
        in_line += bits_in(line_set(line, p));
        entered += bits_in(table->bar[p]);
    }
    for (int p = players; p < MOST_PLAYERS; p++)
        if (table->deck[p] || table->hand[p] || table->bar[p] || game->slot[p]) return 0;
    if (rules->first >= 0 && (rules->first + step) % players != table->turn[0]) return 0;
    if (in_line != line.n || entered % 2 || step - in_line - entered < entered / 2) return 0;
    return (step == 0 || line.n > 0) && !is_over(rules, table);
}

/* --- speed ---------------------------------------------------------------------------------------------- */

/* Any legal action, by 32 random bits. */
RM_FN int any_action(uint64_t all, uint32_t random) {
    for (int at = (int)((uint64_t)random * (uint32_t)bits_in_word(all) >> 32); at; at--) all &= all - 1;
    return lowest_bit(all);
}

/* Play `games` games of `bot` against itself, numbered from `first`; how many turns that took. */
static long play_games(const Rules *rules, int bot, uint64_t seed, int first, int games) {
    long turns = 0;
    for (int game = first; game < first + games; game++) {
        Table table;
        Chance chance = {seed, (uint32_t)game, RM_STREAM_BOT, 0};
        rm_quad random = {{0, 0, 0, 0}};
        reset(rules, &table, seed, (uint32_t)game);
        for (; !is_over(rules, &table); chance.step++) {
            if (bot == RANDOM && chance.step % 4 == 0) random = chance_words(&chance, 0); /* for four turns */
            turn(rules, &table, bot == RANDOM ? any_action(legal(rules, &table), random.w[chance.step % 4])
                                              : decide(rules, &table, bot, &chance));
        }
        turns += table.step[0];
    }
    return turns;
}

/* Random steps of a whole batch, all arrays written. */
static Answer stroll_rows(const void *world, int from, int to) {
    const Whole *whole = (const Whole *)world;
    const Answer fine = {0, 0};
    for (int step = 0; step < whole->steps; step++)
        for (int row = from; row < to; row++) {
            const rm_quad random = rm_philox(whole->seed, (uint32_t)row, (uint32_t)step, RM_STREAM_ACT, 0);
            const uint64_t all = legal(whole->rules, &whole->batch->games[row].table);
            step_row(whole->rules, whole->batch, row, any_action(all, random.w[0]));
        }
    return fine;
}

static void stroll_all(const Rules *rules, Batch *batch, int games, int steps, uint64_t seed, int threads) {
    const Whole whole = {rules, batch, steps, seed};
    in_shares(stroll_rows, &whole, games, threads);
}

#endif
