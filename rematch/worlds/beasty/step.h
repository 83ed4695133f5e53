/* One step of one game of a batch: its turn, its restart, and all that its seats observe. Plain C99, no allocation, no
 * globals; also compiles as CUDA C. */
#ifndef REMATCH_BEASTY_STEP_H
#define REMATCH_BEASTY_STEP_H

#include "observation.h"

/* The arrays of a batch of N games with k seats. */
typedef struct {
    Game *games;
    const int32_t *action;        /* [N, k] only the action of the player to move is read */
    float *line, *cards, *counts; /* [N, k, ...] */
    float *hands, *next;          /* [N, k, 12 (k - 1)], [N, k, k] privileged */
    uint8_t *mask, *acting;       /* [N, k, ACTIONS], [N, k] */
    float *reward, *outcome;      /* [N, k] */
    uint8_t *ended;               /* [N] */
    int32_t *length;              /* [N] */
    const uint64_t *next_seed;    /* [N] seeds of the next episodes */
    const int32_t *next_slot;     /* [N, k] */
} Batch;

RM_FN int cards_width(const Rules *rules) { return SPECIES * (1 + CARD_SETS * rules->players); }
RM_FN int counts_width(const Rules *rules) { return COUNTS * rules->players + 2; }

RM_LARGE_FN void write_observation(const Rules *rules, const Batch *batch, int row) {
    const Table *table = &batch->games[row].table;
    const int k = rules->players, cards = cards_width(rules), counts = counts_width(rules);
    Cards cards_of[MOST_PLAYERS];
    sort_cards(rules, table, cards_of);
    for (int seat = 0; seat < k; seat++) {
        const long index = (long)row * k + seat;
        write_line(rules, table, seat, batch->line + index * PLACES);
        write_cards(rules, cards_of, seat, batch->cards + index * cards);
        write_counts(rules, table, cards_of, seat, batch->counts + index * counts);
        float *hands = batch->hands + index * (SPECIES * (k - 1));
        write_privileged(rules, table, seat, hands, batch->next + index * k);
    }
}

/* Write the player to move and its legal actions; other seats have none. */
RM_LARGE_FN void write_legal(const Rules *rules, const Batch *batch, int row) {
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

RM_LARGE_FN void restart(const Rules *rules, const Batch *batch, int row, uint32_t episode) {
    Game *game = batch->games + row;
    const Game empty = {{{0}, {0}, {0}, {0}, {0}, {0}}, {0}, {0}, {0}, {0}};
    *game = empty;
    game->mark[0] = GAME_MARK;
    game->seed[0] = batch->next_seed[row];
    game->episode[0] = episode;
    for (int s = 0; s < rules->players; s++) game->slot[s] = batch->next_slot[(long)row * rules->players + s];
    reset(rules, &game->table, game->seed[0], episode);
}

/* Play one turn of one game, restart it if it ended, and write all observations. */
RM_LARGE_FN void step_row(const Rules *rules, const Batch *batch, int row, int action) {
    Game *game = batch->games + row;
    const int k = rules->players;
    float *reward = batch->reward + (long)row * k, *outcome = batch->outcome + (long)row * k;
    turn(rules, &game->table, action);
    const int ended = has_ended(rules, &game->table);
    for (int s = 0; s < k; s++) reward[s] = outcome[s] = 0.0f;
    batch->ended[row] = (uint8_t)(ended ? DECIDED : RUNNING);
    batch->length[row] = game->table.step[0];
    if (ended) {
        final_result(rules, &game->table, outcome, reward);
        restart(rules, batch, row, game->episode[0] + 1);
    }
    write_observation(rules, batch, row);
    write_legal(rules, batch, row);
}

/* Whether the action of the player to move is legal. */
RM_FN int is_legal_action(const Rules *rules, const Batch *batch, int row) {
    const Table *table = &batch->games[row].table;
    const int32_t action = batch->action[(long)row * rules->players + table->turn[0]];
    return (uint32_t)action < ACTIONS && (legal(rules, table) >> action & 1);
}

#endif
