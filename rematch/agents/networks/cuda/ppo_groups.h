/* The tiles of a minibatch by the warpgroups (warpgroup.h) of a block: ROW_GROUPS of them compute tiles of 64 rows each, and
 * the last one, the sum group, adds up the gradients of the weights.
 *
 * A warp of a row group has 16 rows of a tile: forward, the loss of each row, and back through the layers, with its numbers in
 * registers. What the gradients of the weights need goes to shared memory. They are products over the 64 rows, which the sum
 * group adds, tile after tile in the order of the block, to sums in its registers. So no group has registers for both, and
 * more warps fit into a multiprocessor. The row groups take turns: the tile at place p belongs to group p % ROW_GROUPS. */
#ifndef REMATCH_PPO_GROUPS_H
#define REMATCH_PPO_GROUPS_H

#include "group_network.h"
#include "work.h"

enum { SUM_GROUP = ROW_GROUPS, THREADS = (ROW_GROUPS + 1) * GROUP, GROUPS = 128, LARGE_GROUPS = 64, ADDERS = 16, ADD_LANES = 8 }; /* see ppo.h */
enum { ROW_VALUES = ROW_STATS + ACTIONS + OUTPUTS, VALUE_STRIDE = ROW_VALUES | 1 }; /* what a row adds to sums that are no products */
enum { BIAS_BLOCK = FEATURES / 8 }; /* of the inputs: it has the column of ones */

/* What a row group has of its tiles, in blocks of 8 x 8; gradients are those of the sums that activations were computed from. */
typedef struct alignas(16) {
    half_float x[2][X_SIZE];                                  /* inputs of this tile and of the next */
    half_float h1[TILE * WIDTH1], h2[TILE * WIDTH2];          /* hidden layers */
    half_float d1[TILE * WIDTH1], d2[TILE * WIDTH2];          /* their gradients */
    half_float back[TILE * BACKS];                            /* gradient of the outputs, then zeros */
    float out[TILE * OUTPUTS];                                /* outputs of the head */
    float value[TILE * VALUE_STRIDE], warp_value[TILE / STRIP][ROW_VALUES]; /* of each row; their sums over each warp's rows */
    RowData data[2];                                          /* of this tile and of the next */
    int row[3][TILE];                                         /* of this tile, of the next and of the one after it */
    Work work[3];                                             /* likewise */
} GroupTile;

/* Sums of one thread of the sum group, in registers: of the gradients of both matrices [unit][.]. In shared memory: of the head
 * [unit][.], of the second layer's biases (one column), and of a number that no product adds. */
typedef struct { float w1[INPUTS / 8][4], w2[WIDTH1 / 8][4]; } Sums;
typedef struct alignas(16) { Four head[GROUP], b2[GROUP]; float value[GROUP]; } SmallSums;

typedef struct { GroupTile group[ROW_GROUPS]; SmallSums small; } Tiles;

/* Registers of a thread: when all threads do the same, in a row group, and in the sum group, which takes what those give. */
enum { REGISTERS = ROW_GROUPS == 3 ? 128 : 168, ROW_REGISTERS = REGISTERS - 16, SUM_REGISTERS = REGISTERS + 16 * ROW_GROUPS };

/* How many tiles this group had before; the sum group has those of all others. */
typedef struct { int turn; } Course;

/* Barriers between a row group and the sum group (warpgroup.h). */
DEVICE int tile_is_there(int group) { return 1 + SUM_GROUP + 1 + group; }
DEVICE int tile_is_added(int group) { return tile_is_there(ROW_GROUPS) + group; }

DEVICE int own_group() { return threadIdx.x / GROUP; }
DEVICE int group_thread() { return threadIdx.x % GROUP; }

/* --- one tile ------------------------------------------------------------------------------------------- */

DEVICE int own_or_first(int row) { return row < 0 ? 0 : row; }

/* Start the copies of a tile's inputs and of the data of its rows. Sixteen threads, or eight, copy a row, so that a warp reads
 * whole rows. A place without a row gets the inputs of row 0, whose gradients are zeros. */
DEVICE void copy_rows(const UpdateArguments *u, half_float *x, const int *rows, RowData *data) {
    enum { PARTS = INPUTS / 8, SIDE = PARTS > 8 ? 16 : 8, EACH = GROUP / SIDE, FOURS_OF_RECORD = RECORD / 4 }; /* parts of 16 bytes */
    const int line = group_thread() / SIDE, part = group_thread() % SIDE;
    if (part < PARTS) {
#pragma unroll
        for (int n = 0; n < TILE; n += EACH)
            copy_16_ahead(x + x_place(line + n, 8 * part), u->inputs + (long long)own_or_first(rows[line + n]) * INPUTS + 8 * part);
    }
    for (int i = group_thread(); i < TILE * FOURS_OF_RECORD; i += GROUP)
        copy_16_ahead(data->number + 4 * i, u->records + (long long)own_or_first(rows[i / FOURS_OF_RECORD]) * RECORD + i % FOURS_OF_RECORD * 4);
}

DEVICE float slope(float h) { return RELU ? (h > 0.0f ? 1.0f : 0.0f) : 1.0f - h * h; }

/* Where a lane has its numbers of a layer in blocks: two of column 16 j + 8 (i / 2), row + 8 (i % 2) of its warp's rows. */
DEVICE half_float *own_rows(half_float *h) { return h + group_thread() / 32 * (STRIP / 8 * ROW_STEP) + 2 * (threadIdx.x & 31); }
DEVICE int pair_step(int j, int i) { return (2 * j + i / 2) * H_STEP + (i & 1) * ROW_STEP; }

/* This warp's rows of a layer into blocks. */
template <int UNITS> DEVICE void store_rows(half_float *h, const Strip<UNITS> &strip) {
    half_float *at = own_rows(h);
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) *(unsigned *)(at + pair_step(j, i)) = strip.pair[j][i];
}

/* From the gradient of a layer's outputs h to that of the sums they were computed from. */
template <int UNITS> DEVICE void times_slope(const float (*sum)[4], const half_float *h, Strip<UNITS> &d) {
#pragma unroll
    for (int j = 0; j < UNITS / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = sum[2 * j + i / 2] + 2 * (i & 1);
            const unsigned bits = *(const unsigned *)(h + pair_step(j, i));
            d.pair[j][i] = two_halves(pair[0] * slope(__uint_as_float(bits << 16)), pair[1] * slope(__uint_as_float(bits & 0xFFFF0000u)));
        }
}

/* From the outputs of this warp's rows to the gradient at them, and the sums of what the rows add to statistics. */
DEVICE void learn_rows(const UpdateArguments *u, const Weights *weights, GroupTile *tile, const RowData *data, const int *rows, float scale) {
    const int lane = threadIdx.x & 31, warp = group_thread() / 32, line = warp * STRIP + lane;
    if (lane < STRIP) {
        const int number = rows[line];
        float *out = tile->out + line * OUTPUTS, *value = tile->value + line * VALUE_STRIDE;
        const RowSums sums = loss_gradient(u, weights, data, line, number, out, tile->back + line * BACKS, scale);
#pragma unroll
        for (int s = 0; s < ROW_STATS; s++) value[s] = sums.stat[s];
#pragma unroll
        for (int a = 0; a < ACTIONS; a++) value[ROW_STATS + a] = sums.log_std[a];
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++) value[ROW_STATS + ACTIONS + o] = number < 0 ? 0.0f : out[o];
    }
    __syncwarp();
    if (lane >= ROW_VALUES) return;
    float total = 0.0f;
#pragma unroll
    for (int r = 0; r < STRIP; r++) total += tile->value[(warp * STRIP + r) * VALUE_STRIDE + lane];
    tile->warp_value[warp][lane] = total;
}

/* The sums over the rows of the minibatch's tile `number`: statistics to memory, the others to the thread's sum. */
DEVICE void add_row_values(const UpdateArguments *u, const GroupTile *tile, const Work *minibatch, int number, SmallSums *small) {
    const int n = group_thread();
    if (n >= ROW_VALUES) return;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < TILE / STRIP; w++) total += tile->warp_value[w][n];
    if (n >= ROW_STATS) small->value[n] += total;
    else if (number * TILE < minibatch->size) u->tile_stats[((long long)minibatch->number * tiles_of(u->minibatch) + number) * ROW_STATS + n] = total;
}

/* Back through the head and the second layer. */
DEVICE void go_back(const Weights *weights, GroupTile *tile) {
    Strip<WIDTH2> d2;
    {
        float sum[WIDTH2 / 8][4];
        const half_float *own = tile->back + group_thread() / 32 * (STRIP * BACKS) + 2 * (threadIdx.x & 31);
        const unsigned back[4] = {*(const unsigned *)own, *(const unsigned *)(own + ROW_STEP), 0, 0}; /* columns from 8 on are zeros */
        begin_products();
        multiply_16<WIDTH2, true>(sum, back, descriptor(backward_factor<HEADS>(weights->head)), false);
        wait_for_products();
        times_slope<WIDTH2>(sum, own_rows(tile->h2), d2);
    }
    store_rows(tile->d2, d2);
    Strip<WIDTH1> d1;
    float sum[WIDTH1 / 8][4];
    begin_products();
    multiply<WIDTH1, true, WIDTH2>(sum, d2.pair, backward_factor<WIDTH2>(weights->w2), false);
    wait_for_products();
    times_slope<WIDTH1>(sum, own_rows(tile->h1), d1);
    store_rows(tile->d1, d1);
}

/* The tile `steps` places further in the order of the block. */
DEVICE Work further(const UpdateArguments *u, Share share, Work work, int steps) {
    for (int n = 0; n < steps; n++) work = next_work(u, share, work);
    return work;
}

/* What this group computes in its `turn`-th turn, and the rows of that tile. Two warps do it. */
DEVICE void plan_turn(const UpdateArguments *u, GroupTile *tile, Work work, int turn) {
    if (group_thread() == 0) tile->work[turn % 3] = work;
    copy_order(u, tile->row[turn % 3], work, group_thread());
}

/* Compute a tile; meanwhile copy the next one, and find the rows of the one after it. */
DEVICE void compute_tile(const UpdateArguments *u, const Weights *weights, GroupTile *tile, const Share *share, int turn) {
    wait_for_copies();
    show_to_tensor_cores();
    group_barrier(own_group()); /* its inputs are there */
    Strip<WIDTH1> h1;
    Strip<WIDTH2> h2;
    float sum[WIDTH1 / 8][4];
    if (group_thread() < TILE) plan_turn(u, tile, further(u, *share, tile->work[(turn + 1) % 3], ROW_GROUPS), turn + 2);
    begin_first_layer(weights, tile->x[turn & 1], sum);
    wait_for_threads(tile_is_added(own_group()), 2 * GROUP); /* the one before it, whose memory is used again */
    copy_rows(u, tile->x[(turn + 1) & 1], tile->row[(turn + 1) % 3], tile->data + ((turn + 1) & 1));
    finish_layer<WIDTH1>(sum, h1);
    store_rows(tile->h1, h1);
    second_group_layer(weights, h1, h2);
    store_rows(tile->h2, h2);
    group_head_layer(weights, h2, tile->out);
    __syncwarp();
    learn_rows(u, weights, tile, tile->data + (turn & 1), tile->row[turn % 3], 1.0f / (float)tile->work[turn % 3].size);
    go_back(weights, tile);
    show_to_tensor_cores();
    tell_threads(tile_is_there(own_group()), 2 * GROUP);
}

/* --- the sums of the sum group --------------------------------------------------------------------------- */

template <int COLUMNS> DEVICE void add_to(float (*to)[4], const float (*sum)[4]) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) to[n][i] += sum[n][i];
}

DEVICE void add_to(Four *to, const float sum[4]) {
    const Four before = to[group_thread()];
    to[group_thread()] = {before.x + sum[0], before.y + sum[1], before.z + sum[2], before.w + sum[3]};
}

/* Add what a tile has in shared memory, the `turn`-th of its group: gradients of the matrices, the head and the biases. Each is
 * first the sum over the rows of the tile, and then added to what the tiles before have. */
DEVICE void add_tile(const UpdateArguments *u, const GroupTile *tile, int group, int turn, const Work *minibatch, int number, Sums *sums, SmallSums *small) {
    const half_float *x = tile->x[turn & 1];
    wait_for_threads(tile_is_there(group), 2 * GROUP);
    {
        float w1[INPUTS / 8][4], b2[1][4];
        begin_products();
        multiply_wide<INPUTS, true, true, TILE>(w1, over_rows(tile->d1, H_STEP), over_rows(x, X_STEP));
        multiply<8, true, true, TILE>(b2, over_rows(tile->d2, H_STEP), over_rows(x + BIAS_BLOCK * X_STEP, X_STEP), false);
        wait_for_products();
        add_to<INPUTS>(sums->w1, w1);
        add_to(small->b2, b2[0]);
    }
    float w2[WIDTH1 / 8][4], head[1][4];
    begin_products();
    multiply<WIDTH1, true, true, TILE>(w2, over_rows(tile->d2, H_STEP), over_rows(tile->h1, H_STEP), false);
    multiply<8, true, true, TILE>(head, over_rows(tile->h2, H_STEP), over_rows(tile->back, 0), false);
    wait_for_products();
    add_to<WIDTH1>(sums->w2, w2);
    add_to(small->head, head[0]);
    add_row_values(u, tile, minibatch, number, small);
    tell_threads(tile_is_added(group), 2 * GROUP);
}

/* --- the sums of a chain of tiles ----------------------------------------------------------------------- */

template <int COLUMNS> DEVICE void store_matrix(float *out, const float (*sum)[4]) {
    float *at = out + group_thread() / 32 * (COLUMNS * 16) + (threadIdx.x & 31) * 4;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) store_four(at + n * 128, {sum[n][0], sum[n][1], sum[n][2], sum[n][3]});
}

/* Write the sums to the place of their chain. */
DEVICE void store_sums(const UpdateArguments *u, int chain, Sums *sums, SmallSums *small) {
    const int lane = threadIdx.x & 31, unit = group_thread() / 32 * STRIP + lane / 4, column = 2 * (lane % 4);
    const Four b2 = small->b2[group_thread()], head = small->head[group_thread()];
    const float b2s[4] = {b2.x, b2.y, b2.z, b2.w}, heads[4] = {head.x, head.y, head.z, head.w};
    float *out = u->partial + (long long)chain * WEIGHTS;
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the column of ones has the gradient of the biases */
        const int line = unit + 8 * (i / 2);
        if (column + i % 2 == FEATURES % 8) {
            out[B1_AT + line] = sums->w1[BIAS_BLOCK][i];
            out[B2_AT + line] = b2s[i];
            sums->w1[BIAS_BLOCK][i] = 0.0f;
        }
        if (column + i % 2 < OUTPUTS) out[HEAD_AT + (column + i % 2) * WIDTH2 + line] = heads[i];
    }
    store_matrix<INPUTS>(out + W1_AT, sums->w1);
    store_matrix<WIDTH1>(out + W2_AT, sums->w2);
    const int n = group_thread() - ROW_STATS, a = n, o = n - ACTIONS;
    if (!DISCRETE && a >= 0 && a < ACTIONS) out[LOG_STD_AT + a] = small->value[group_thread()];
    if (o >= 0 && o < OUTPUTS) out[HEAD_BIAS_AT + o] = small->value[group_thread()];
    if (group_thread() < WEIGHTS - WEIGHTS_END) out[WEIGHTS_END + group_thread()] = 0.0f;
}

/* --- a minibatch ------------------------------------------------------------------------------------------ */

/* Plan the first two turns. */
DEVICE Course first_course(const UpdateArguments *u, Tiles *tiles, Share share) {
    if (own_group() == SUM_GROUP)
        for (int group = 0; group < ROW_GROUPS; group++) tell_threads(tile_is_added(group), 2 * GROUP); /* no tile is waiting */
    if (own_group() == SUM_GROUP || group_thread() >= TILE) return {0};
    GroupTile *tile = tiles->group + own_group();
    const Work work = further(u, share, first_work(u, share), own_group());
    plan_turn(u, tile, work, 0);
    plan_turn(u, tile, further(u, share, work, ROW_GROUPS), 1);
    wait_for_copies();
    return {0};
}

/* Start the copies of the first tile, after a barrier. */
DEVICE void copy_first_rows(const UpdateArguments *u, Tiles *tiles) {
    if (own_group() == SUM_GROUP) return;
    GroupTile *tile = tiles->group + own_group();
    copy_rows(u, tile->x[0], tile->row[0], tile->data);
}

/* The tiles of a row group. */
DEVICE int compute_tiles(const UpdateArguments *u, const Weights *weights, GroupTile *tile, const Share *share, const Work *minibatch, int turn) {
    for (; tile->work[turn % 3].number == minibatch->number && tile->work[turn % 3].size > 0; turn++) compute_tile(u, weights, tile, share, turn);
    return turn;
}

/* The sums of all tiles; those of each chain go to memory. */
DEVICE int add_tiles(const UpdateArguments *u, Tiles *tiles, const Share *share, const Work *minibatch, int turn) {
    for (int chain = share->worker; chain == share->worker || (chain < share->chains && chain * TILE < minibatch->size); chain += share->workers) {
        Sums sums = {};
        tiles->small.head[group_thread()] = tiles->small.b2[group_thread()] = {0.0f, 0.0f, 0.0f, 0.0f};
        tiles->small.value[group_thread()] = 0.0f;
        int tile = chain;
        do {
            const int group = turn % ROW_GROUPS;
            add_tile(u, tiles->group + group, group, turn++ / ROW_GROUPS, minibatch, tile, &sums, &tiles->small);
            tile += share->chains;
        } while (tile * TILE < minibatch->size);
        if (chain * TILE < minibatch->size) store_sums(u, chain, &sums, &tiles->small);
    }
    return turn;
}

/* All tiles of this block. A block without a tile computes one without rows. */
DEVICE void compute_minibatch(const UpdateArguments *u, const Weights *weights, Tiles *tiles, const Share *share, const Work *minibatch, Course *course) {
    show_to_tensor_cores();
    __syncthreads(); /* the weights are there */
    if (own_group() == SUM_GROUP) {
        take_registers<SUM_REGISTERS>();
        course->turn = add_tiles(u, tiles, share, minibatch, course->turn);
        give_registers<REGISTERS>();
    } else {
        give_registers<ROW_REGISTERS>();
        course->turn = compute_tiles(u, weights, tiles->group + own_group(), share, minibatch, course->turn);
        take_registers<REGISTERS>();
    }
}

#endif
