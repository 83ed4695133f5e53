/* The search of search.h on the GPU, for many positions at a time. A pair is a position and one of its candidates;
 * with a completion it is one playout, and one thread. RULES holds the settings as a compile-time constant. */
#include "search.h"
#include "step.h"

/* The arrays of one search; cuda_search.py has the same list. */
typedef struct {
    const Game *games;     /* [rows] */
    const int32_t *number; /* [rows] numbers of the games: part of the random key */
    uint64_t *candidates;  /* [rows] actions to search as bits; the first kernel removes those that are not legal */
    int32_t *count;        /* [rows] candidates */
    int32_t *turns;        /* [rows] turns played; playouts of equal length run side by side */
    const long long *row;    /* [pairs] */
    const long long *rank;   /* [pairs] place of the action among the candidates of its position */
    double *value;         /* [completions][pairs] */
    double *score;         /* [rows][ACTIONS] means */
    const int32_t *players; /* [rows][seats] players of the leaves, see leaf_turn */
    Game *leaf;            /* [completions][pairs] */
    const float *logits;   /* [leaves][ACTIONS] of the policy */
    const float *estimate; /* [leaves] values for the players to move */
    uint8_t *running;      /* [leaves] whether the game has not ended */
    uint64_t key, step;    /* random key of the search */
    long long rows, pairs, completions, stream, own_bot, other_bot;
} SearchArrays;

RM_FN long search_index() { return (long)blockIdx.x * blockDim.x + threadIdx.x; }

/* One thread per position: its candidates, their count, and the turns played. */
extern "C" __global__ void search_candidates(const SearchArrays *a) {
    const long row = search_index();
    if (row >= a->rows) return;
    const Rules rules = RULES;
    a->candidates[row] &= legal(&rules, &a->games[row].table);
    a->count[row] = bits_in_word(a->candidates[row]);
    a->turns[row] = a->games[row].table.step[0];
}

RM_FN int candidate_of(const SearchArrays *a, long pair) {
    uint64_t candidates = a->candidates[a->row[pair]];
    for (long skip = a->rank[pair]; skip; skip--) candidates &= candidates - 1;
    return lowest_bit(candidates);
}

/* Key and number of the sample of hidden cards: those of `completions_of` in batch.h. */
RM_FN SplitMix deal_sample(const SearchArrays *a, const Rules *rules, long row, int number, Table *table) {
    const BotKey bot_key = {a->key, (uint32_t)a->number[row], (uint32_t)a->stream, a->step};
    const rm_quad random = bot_random(&bot_key, 0);
    const Completions completions = {(uint64_t)random.w[0] << 32 | random.w[1], number, number + 1};
    return deal_completion(rules, &completions, number, table);
}

/* The value of one playout by bots; grid (pairs, completions). Solved positions need one completion. */
extern "C" __global__ void search_playouts(const SearchArrays *a) {
    const long pair = search_index();
    const int number = blockIdx.y, bots[2] = {(int)a->own_bot, (int)a->other_bot};
    if (pair >= a->pairs) return;
    const Rules rules = RULES;
    const long row = a->row[pair];
    double *value = a->value + (long)number * a->pairs + pair;
    Table table = a->games[row].table;
    const int seat = table.turn[0], action = candidate_of(a, pair);
    if (is_solvable(&rules, &table)) {
        if (number > 0) return;
        turn(&rules, &table, action);
        *value = -(double)EXACT * solve(&rules, &table, -EXACT, EXACT);
        return;
    }
    SplitMix generator = deal_sample(a, &rules, row, number, &table);
    turn(&rules, &table, action);
    *value = play_out(&rules, &table, seat, bots, &generator);
}

/* The mean of each pair, summed in the order of the CPU. */
extern "C" __global__ void search_means(const SearchArrays *a) {
    const long pair = search_index();
    if (pair >= a->pairs) return;
    const Rules rules = RULES;
    const long row = a->row[pair];
    const int action = candidate_of(a, pair), solved = is_solvable(&rules, &a->games[row].table);
    const Completions completions = {0, 0, (int)a->completions};
    double sum[ACTIONS];
    sum[action] = 0.0;
    for (long c = 0; c < (solved ? 1 : a->completions); c++) sum[action] += a->value[c * a->pairs + pair];
    search_values(&rules, &a->games[row].table, (uint64_t)1 << action, &completions, sum);
    a->score[row * ACTIONS + action] = sum[action];
}

/* --- playouts of a policy: one turn of all leaves at a time ---------------------------------------------- */

/* The position after each pair's action in each completion; grid (pairs, completions). */
extern "C" __global__ void search_leaves(const SearchArrays *a) {
    const long pair = search_index(), index = (long)blockIdx.y * a->pairs + pair;
    if (pair >= a->pairs) return;
    const Rules rules = RULES;
    const long row = a->row[pair];
    Game *leaf = a->leaf + index;
    *leaf = a->games[row];
    leaf->seed[0] = deal_sample(a, &rules, row, (int)blockIdx.y, &leaf->table).state;
    for (int s = 0; s < rules.players; s++) leaf->slot[s] = a->players[row * rules.players + s];
    turn(&rules, &leaf->table, candidate_of(a, pair));
    a->running[index] = !has_ended(&rules, &leaf->table);
}

/* One turn of every leaf; grid (pairs, completions). */
extern "C" __global__ void search_turns(const SearchArrays *a) {
    const long pair = search_index(), index = (long)blockIdx.y * a->pairs + pair;
    if (pair >= a->pairs || !a->running[index]) return;
    const Rules rules = RULES;
    leaf_turn(&rules, a->leaf + index, a->logits + index * ACTIONS);
    a->running[index] = !has_ended(&rules, &a->leaf[index].table);
}

/* The values of the leaves for the players that search; grid (pairs, completions). */
extern "C" __global__ void search_results(const SearchArrays *a) {
    const long pair = search_index(), index = (long)blockIdx.y * a->pairs + pair;
    if (pair >= a->pairs) return;
    const Rules rules = RULES;
    const Table *table = &a->leaf[index].table;
    const int seat = a->games[a->row[pair]].table.turn[0];
    const double estimate = (double)a->estimate[index];
    a->value[index] = !a->running[index] ? final_value(&rules, table, seat) : table->turn[0] == seat ? estimate : -estimate;
}

/* What the player to move observes of any games. */
typedef struct {
    const Game *games;
    float *obs;    /* [rows][line, cards, counts] */
    uint8_t *mask; /* [rows][ACTIONS] */
    long long rows;
} ObserveArrays;

extern "C" __global__ void observe_movers(const ObserveArrays *a) {
    const long row = search_index();
    if (row >= a->rows) return;
    const Rules rules = RULES;
    const Table *table = &a->games[row].table;
    const int seat = table->turn[0], width = PLACES + cards_width(&rules) + counts_width(&rules);
    const uint64_t all = legal(&rules, table);
    Cards cards[MOST_PLAYERS];
    float *obs = a->obs + row * width;
    sort_cards(&rules, table, cards);
    write_line(&rules, table, seat, obs);
    write_cards(&rules, cards, seat, obs + PLACES);
    write_counts(&rules, table, cards, seat, obs + PLACES + cards_width(&rules));
    for (int action = 0; action < ACTIONS; action++) a->mask[row * ACTIONS + action] = (uint8_t)(all >> action & 1);
}
