/* Batches of games on the CPU, on one or more threads: steps, observations, bots, validation of states. */
#ifndef REMATCH_BEASTY_BATCH_H
#define REMATCH_BEASTY_BATCH_H

#include "search.h"
#include "step.h"
#include "thread_slices.h"

typedef struct { const Rules *rules; Batch *batch; int steps; uint64_t seed; /* of random_steps */ } StepJob;

static Answer step_rows(const void *world, int from, int to) {
    const StepJob *job = (const StepJob *)world;
    const Batch *batch = job->batch;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const long index = (long)row * job->rules->players + batch->games[row].table.turn[0];
        step_row(job->rules, batch, row, batch->action[index]);
    }
    return fine;
}

/* The first game with an illegal action, or FINE; checked before any game moves. */
static int first_illegal_action(const Rules *rules, const Batch *batch, int games) {
    for (int row = 0; row < games; row++)
        if (!is_legal_action(rules, batch, row)) return row;
    return FINE;
}

static Answer step_all(const Rules *rules, Batch *batch, int games, int threads) {
    const StepJob job = {rules, batch, 1, 0};
    return in_shares(step_rows, &job, games, threads);
}

static void start_all(const Rules *rules, Batch *batch, int games, uint32_t episode) {
    for (int row = 0; row < games; row++) {
        restart(rules, batch, row, episode);
        write_observation(rules, batch, row);
        write_legal(rules, batch, row);
    }
}

/* --- bots over rows ------------------------------------------------------------------------------------- */

typedef struct {
    const Rules *rules;
    const Game *games;
    const int32_t *number; /* [n] numbers of the games in the whole batch: part of the random key */
    int bot[2], range[2]; /* the bot; in a search also the bot of the other seats */
    const uint64_t *candidates; /* [n] actions to search as bits; NULL: all legal actions */
    BotKey bot_key;   /* without the game number */
    double *score;   /* [n, ACTIONS] */
    int32_t *action; /* [n] */
    int plies;       /* turns between an action and its leaf */
    const int32_t *players; /* [n, seats] players of a leaf (`leaf_turn` in search.h) */
    const int64_t *leaf_start; /* [n] index of the first leaf of each row */
    Game *leaf;      /* [leaves] */
} Request;

static Answer decide_rows(const void *world, int from, int to) {
    const Request *request = (const Request *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        BotKey bot_key = request->bot_key;
        bot_key.game = (uint32_t)request->number[row];
        request->action[row] = decide(request->rules, &request->games[row].table, request->bot[0], &bot_key);
    }
    return fine;
}

static Answer score_rows(const void *world, int from, int to) {
    const Request *request = (const Request *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        BotKey bot_key = request->bot_key;
        bot_key.game = (uint32_t)request->number[row];
        double *score = request->score + (long)row * ACTIONS;
        score_actions(request->rules, &request->games[row].table, request->bot[0], &bot_key, score);
    }
    return fine;
}

static Completions completions_of(const Request *request, int row) {
    BotKey bot_key = request->bot_key;
    bot_key.game = (uint32_t)request->number[row];
    const rm_quad random = bot_random(&bot_key, 0);
    const uint64_t key = (uint64_t)random.w[0] << 32 | random.w[1];
    const Completions completions = {key, request->range[0], request->range[1]};
    return completions;
}

static uint64_t candidates_of(const Request *request, int row) {
    const uint64_t all = legal(request->rules, &request->games[row].table);
    return request->candidates ? all & request->candidates[row] : all;
}

/* Sums over completions, and the best action; a single candidate is not searched. */
static Answer search_rows(const void *world, int from, int to) {
    const Request *request = (const Request *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const Completions completions = completions_of(request, row);
        const uint64_t candidates = candidates_of(request, row);
        double *sum = request->score + (long)row * ACTIONS;
        const Table *table = &request->games[row].table;
        if (candidates & (candidates - 1))
            search(request->rules, table, candidates, request->bot, &completions, sum);
        request->action[row] = best_of(candidates, sum);
    }
    return fine;
}

/* Expected value of each action, also of a single candidate. */
static Answer value_rows(const void *world, int from, int to) {
    const Request *request = (const Request *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const Completions completions = completions_of(request, row);
        const uint64_t candidates = candidates_of(request, row);
        const Table *table = &request->games[row].table;
        double *value = request->score + (long)row * ACTIONS;
        for (uint64_t remaining = candidates; remaining; remaining &= remaining - 1)
            value[lowest_bit(remaining)] = 0.0;
        search(request->rules, table, candidates, request->bot, &completions, value);
        search_values(request->rules, table, candidates, &completions, value);
        request->action[row] = best_of(candidates, value);
    }
    return fine;
}

/* The positions `plies` turns after each action of each completion, for a policy or a value function. */
static Answer leaf_rows(const void *world, int from, int to) {
    const Request *request = (const Request *)world;
    const Rules *rules = request->rules;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++) {
        const Completions completions = completions_of(request, row);
        const uint64_t candidates = candidates_of(request, row);
        int64_t index = request->leaf_start[row];
        for (int c = completions.from; c < completions.to; c++) {
            Game sample = request->games[row];
            const SplitMix start = deal_completion(rules, &completions, c, &sample.table);
            for (uint64_t remaining = candidates; remaining; remaining &= remaining - 1, index++) {
                Game *leaf = request->leaf + index;
                SplitMix generator = start;
                *leaf = sample;
                turn(rules, &leaf->table, lowest_bit(remaining));
                for (int ply = 0; ply < request->plies && !has_ended(rules, &leaf->table); ply++)
                    turn(rules, &leaf->table,
                         choose_action(rules, &leaf->table, request->bot[0], &generator));
                leaf->seed[0] = generator.state;
                for (int s = 0; s < rules->players; s++)
                    leaf->slot[s] = request->players[(long)row * rules->players + s];
            }
        }
    }
    return fine;
}

typedef struct { const Rules *rules; Game *leaf; const float *logits; } LeafTurns;

/* One turn of every leaf that has not ended. */
static Answer leaf_turn_rows(const void *world, int from, int to) {
    const LeafTurns *job = (const LeafTurns *)world;
    const Answer fine = {0, 0};
    for (int row = from; row < to; row++)
        if (!has_ended(job->rules, &job->leaf[row].table))
            leaf_turn(job->rules, job->leaf + row, job->logits + (long)row * ACTIONS);
    return fine;
}

/* --- validation of states ------------------------------------------------------------------------------- */

RM_FN int is_valid_player(const Rules *rules, const Table *table, Line line, int p) {
    const int first = (table->turn[0] + SPECIES * rules->players - table->step[0]) % rules->players;
    const int turns = (table->step[0] + rules->players - 1 - (p - first + rules->players) % rules->players)
                    / rules->players;
    const int deck = deck_size(table->deck[p]), remaining = DECK - (turns < DECK ? turns : DECK);
    const uint32_t in_deck = deck_set(table->deck[p]), in_line = line_set(line, p), hand = table->hand[p];
    const uint32_t bar = table->bar[p], all = hand | in_deck | in_line | bar;
    const int total = bits_in(hand) + bits_in(in_deck) + bits_in(in_line) + bits_in(bar);
    return deck == remaining && bits_in(in_deck) == deck && bits_in(hand) == SPECIES - turns - remaining
        && !((hand | bar) & ~(uint32_t)ALL_CARDS) && bits_in(all) == total;
}

static int is_valid_game(const Rules *rules, const Game *game) {
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
        if (!is_valid_player(rules, table, line, p) || game->slot[p] < 0) return 0;
        in_line += bits_in(line_set(line, p));
        entered += bits_in(table->bar[p]);
    }
    for (int p = players; p < MOST_PLAYERS; p++)
        if (table->deck[p] || table->hand[p] || table->bar[p] || game->slot[p]) return 0;
    if (rules->first >= 0 && (rules->first + step) % players != table->turn[0]) return 0;
    if (in_line != line.n || entered % 2 || step - in_line - entered < entered / 2) return 0;
    return (step == 0 || line.n > 0) && !has_ended(rules, table);
}

/* --- speed ---------------------------------------------------------------------------------------------- */

/* A uniformly random legal action, from 32 random bits. */
RM_FN int random_action(uint64_t all, uint32_t random) {
    for (int skip = (int)((uint64_t)random * (uint32_t)bits_in_word(all) >> 32); skip; skip--) all &= all - 1;
    return lowest_bit(all);
}

/* Play `games` games of `bot` against itself, numbered from `first`; returns the number of turns. */
static long play_games(const Rules *rules, int bot, uint64_t seed, int first, int games) {
    long turns = 0;
    for (int game = first; game < first + games; game++) {
        Table table;
        BotKey bot_key = {seed, (uint32_t)game, RM_STREAM_BOT, 0};
        rm_quad random = {{0, 0, 0, 0}};
        reset(rules, &table, seed, (uint32_t)game);
        for (; !has_ended(rules, &table); bot_key.step++) {
            if (bot == RANDOM && bot_key.step % 4 == 0) random = bot_random(&bot_key, 0); /* for four turns */
            turn(rules, &table, bot == RANDOM ? random_action(legal(rules, &table), random.w[bot_key.step % 4])
                                              : decide(rules, &table, bot, &bot_key));
        }
        turns += table.step[0];
    }
    return turns;
}

/* Random steps of a batch; all arrays are written. */
static Answer random_step_rows(const void *world, int from, int to) {
    const StepJob *job = (const StepJob *)world;
    const Answer fine = {0, 0};
    for (int step = 0; step < job->steps; step++)
        for (int row = from; row < to; row++) {
            const rm_quad random = rm_philox(job->seed, (uint32_t)row, (uint32_t)step, RM_STREAM_ACT, 0);
            const uint64_t all = legal(job->rules, &job->batch->games[row].table);
            step_row(job->rules, job->batch, row, random_action(all, random.w[0]));
        }
    return fine;
}

static void random_steps(const Rules *rules, Batch *batch, int games, int steps, uint64_t seed, int threads) {
    const StepJob job = {rules, batch, steps, seed};
    in_shares(random_step_rows, &job, games, threads);
}

#endif
