/* Proximal policy optimization: all minibatches of all epochs of an iteration in one launch.
 *
 * The blocks of a launch serve one role; roles learn side by side. For each minibatch the blocks share its tiles, write their sums of
 * the gradient to slots of their own, wait for each other, and add the slots in order: no result depends on timing. Then
 * each block makes the Adam step of its share of the weights. The readable loss is agents/learners/ppo.py. */
#ifndef REMATCH_PPO_H
#define REMATCH_PPO_H

#include "ppo_gradient.h"

typedef struct {
    Weights weights; /* first: its matrices are aligned to 16 bytes */
    Tile tile;
    RowData data[2];          /* of this tile and of the next */
    int row[3][TILE];         /* of this tile, of the next and of the one after it */
    UpdateArguments arguments;
    double scaling[2];
    float magnet_log_std[ACTIONS];
    float rate, unbias, log_std[STRIPS][ACTIONS];
    double warp_sum[THREADS / 32], total[2];
    double norms, clipped_norms, kl_sum, decay1, decay2; /* of thread 0 */
} UpdateMemory;

/* The minibatches of an iteration in order, and the tiles of one of them that this block computes. */
typedef struct { int epoch, at, size, tile; } Work;

/* --- the order of rows ------------------------------------------------------------------------------- */

DEVICE unsigned mix(unsigned x) {
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

/* A random permutation of 0 .. count - 1 without memory: four rounds of a Feistel network on `bits` bits, repeated until the
 * number is below `count` (Black and Rogaway 2002, "cycle walking"). */
DEVICE unsigned permuted(unsigned i, unsigned count, int bits, rm_quad key) {
    do {
        int low = bits - bits / 2; /* bits of the right part */
        for (int round = 0; round < 4; round++) {
            const unsigned left = i >> low, right = i & ((1u << low) - 1u);
            low = bits - low;
            i = right << low | (left ^ (mix(right ^ key.w[round]) & ((1u << low) - 1u)));
        }
    } while (i >= count);
    return i;
}

/* The rows to learn from in the order of every epoch: order [epochs][capacity]. */
extern "C" __global__ void shuffle(const UpdateArguments *roles) {
    const UpdateArguments *u = roles + blockIdx.y;
    const int count = *u->count;
    int bits = 2;
    while (bits < 31 && 1 << bits < count) bits++;
    for (int epoch = 0; epoch < u->epochs; epoch++) {
        const rm_quad key = rm_philox(u->key, (uint32_t)epoch, (uint32_t)u->iteration, 17, 0);
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
            u->order[(long long)epoch * u->capacity + i] = u->index[permuted(i, count, bits, key)];
    }
}

/* --- sums in a fixed order --------------------------------------------------------------------------- */

/* The sum over all threads of a block, in thread 0; every LANES-th thread has a number, the others 0. */
template <int LANES> DEVICE double block_sum(UpdateMemory *memory, double x) {
    enum { WARPS = THREADS / 32 };
#pragma unroll
    for (int step = 16; step >= LANES; step >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    if ((threadIdx.x & 31) == 0) memory->warp_sum[threadIdx.x >> 5] = x;
    __syncthreads();
    double total = threadIdx.x < WARPS ? memory->warp_sum[threadIdx.x] : 0.0;
    if (threadIdx.x < 32) {
#pragma unroll
        for (int step = WARPS / 2; step; step >>= 1) total += __shfl_xor_sync(0xFFFFFFFFu, total, step);
    }
    return total;
}

/* All blocks of the role have come this far, and see what the others wrote. `target` counts arrivals. */
DEVICE void wait_for_blocks(unsigned *barrier, unsigned *target) {
    __syncthreads();
    if (threadIdx.x == 0) {
        *target += (int)gridDim.x;
        arrive_and_wait(barrier, *target);
    }
    __syncthreads();
}

/* --- one minibatch --------------------------------------------------------------------------------------- */

/* The sums of this warp, in the order of the floats; warp: from 0 to 7. */
template <int M, int N> DEVICE void store_matrix(float *out, int warp, const Sums *sums) {
    float *at = out + warp * (M * N * 128) + (threadIdx.x & 31) * 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float *sum = sums->matrix[m][n];
            store_four(at + (m * N + n) * 128, {sum[0], sum[1], sum[2], sum[3]});
        }
}

/* The sums of the head, [OUTPUTS][WIDTH2]. */
DEVICE void store_head(float *out, int column, const Sums *sums) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < HEADS / 16; m++)
#pragma unroll
        for (int n = 0; n < HEAD_TILES; n++)
#pragma unroll
            for (int part = 0; part < 2; part++) {
                const int line = 16 * m + 8 * part + lane / 4;
                if (line < OUTPUTS) store_pair(out + line * WIDTH2 + column + 8 * n + 2 * (lane % 4), sums->head[m][n][2 * part], sums->head[m][n][2 * part + 1]);
            }
}

template <int M> DEVICE void store_row_sums(float *out, int rows, int row, const float (*sum)[4]) {
    const int lane = threadIdx.x & 31;
    if (lane % 4) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
            int line = row + 16 * m + 8 * part + lane / 4;
            if (line < rows) out[line] = sum[m][2 * part];
        }
}

/* Write the sums of all threads of this block to its slot; the sum of `kl`. */
DEVICE float store_sums(const UpdateArguments *u, UpdateMemory *memory, Sums *sums) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = warp & 1, side = (warp & 7) >> 1;
    float *out = u->partial + (long long)blockIdx.x * WEIGHTS;
    if (warp < 8) {
        store_matrix<W1_ROWS, W1_TILES>(out + W1_AT, warp, sums);
        if (side == 0) store_row_sums<W1_ROWS>(out + B1_AT, WIDTH1, group * (WIDTH1 / 2), sums->bias);
    } else {
        store_matrix<W2_ROWS, W2_TILES>(out + W2_AT, warp - 8, sums);
        store_head(out + HEAD_AT, (warp - 8) * 8 * HEAD_TILES, sums);
        if (side == 0) store_row_sums<W2_ROWS>(out + B2_AT, WIDTH2, group * (WIDTH2 / 2), sums->bias);
        if (warp == 15) store_row_sums<HEADS / 16>(out + HEAD_BIAS_AT, OUTPUTS, 0, sums->bias);
    }
    if (warp < 2 * STRIPS && !(warp & 1)) {
        for (int step = 16; step; step >>= 1) {
            for (int a = 0; a < ACTIONS && !DISCRETE; a++) sums->log_std[a] += __shfl_xor_sync(0xFFFFFFFFu, sums->log_std[a], step);
            sums->kl += __shfl_xor_sync(0xFFFFFFFFu, sums->kl, step);
        }
        if (lane == 0) {
            for (int a = 0; a < ACTIONS; a++) memory->log_std[warp / 2][a] = sums->log_std[a];
            memory->warp_sum[warp / 2] = sums->kl;
        }
    }
    __syncthreads();
    for (int i = LOG_STD_AT + threadIdx.x; i < WEIGHTS; i += THREADS) {
        float total = 0.0f;
        for (int w = 0; w < STRIPS && i < WEIGHTS_END; w++) total += memory->log_std[w][i - LOG_STD_AT];
        out[i] = total;
    }
    float kl = 0.0f;
    for (int w = 0; w < STRIPS; w++) kl += (float)memory->warp_sum[w];
    return kl;
}

/* --- the tiles of a block ---------------------------------------------------------------------------------- */

DEVICE int minibatch_size(const UpdateArguments *u, int count, int at) { return count - at < u->minibatch ? count - at : u->minibatch; }

/* The next minibatch; its size is 0 after the last one. */
DEVICE Work next_minibatch(const UpdateArguments *u, int count, Work work) {
    work.at += u->minibatch;
    if (work.at >= count) work.at = 0, work.epoch++;
    work.size = work.epoch < u->epochs ? minibatch_size(u, count, work.at) : 0;
    work.tile = blockIdx.x;
    return work;
}

/* What the block computes after this tile: its next one of the minibatch, or its first of the next minibatch. */
DEVICE Work next_work(const UpdateArguments *u, int count, Work work) {
    work.tile += gridDim.x;
    return work.tile * TILE < work.size ? work : next_minibatch(u, count, work);
}

/* Start the copies of the rows of the arrays that a tile has; -1: none. */
DEVICE void copy_order(const UpdateArguments *u, int *rows, Work work) {
    if (threadIdx.x >= TILE) return;
    const int place = work.tile * TILE + threadIdx.x;
    if (place < work.size) copy_ahead(rows + threadIdx.x, u->order + (long long)work.epoch * u->capacity + work.at + place);
    else rows[threadIdx.x] = -1;
}

/* Start the copies of a tile's inputs and of the data of its rows. */
DEVICE void copy_rows(const UpdateArguments *u, half_float *x, const int *rows, RowData *data) {
    enum { PARTS = INPUTS / 8 }; /* of 16 bytes */
#pragma unroll 3
    for (int i = threadIdx.x; i < TILE * PARTS; i += THREADS) {
        const int row = rows[i / PARTS];
        half_float *to = x + i / PARTS * X_STRIDE + i % PARTS * 8;
        if (row >= 0) copy_16_ahead(to, u->inputs + (long long)row * INPUTS + i % PARTS * 8);
        else store_four((float *)to, {0.0f, 0.0f, 0.0f, 0.0f});
    }
    const int line = threadIdx.x % TILE, part = threadIdx.x / TILE; /* four threads a row, or more */
    const long long row = rows[line];
    if (row < 0) return;
    if (part == 0) {
        copy_ahead(data->logp + line, u->logp + row);
        copy_ahead(data->advantage + line, u->advantage + row);
    } else if (part == 1) {
        copy_ahead(data->target + line, u->target + row);
        copy_ahead(data->value + line, u->value + row);
    } else if (part == 2) {
        if (DISCRETE) copy_ahead(data->choice + line, u->choice + row);
        else
            for (int a = 0; a < ACTIONS; a++) copy_ahead(data->action + line * ACTIONS + a, u->action + row * ACTIONS + a);
    } else if (part == 3 && u->magnet)
        for (int a = 0; a < ACTIONS; a++) copy_ahead(data->magnet + line * ACTIONS + a, u->magnet + row * ACTIONS + a);
}

/* Compute a tile, the `turn`-th of this block; meanwhile copy the next one, and find the rows of the one after it. */
DEVICE void compute_tile(const UpdateArguments *u, UpdateMemory *memory, int turn, Work work, Work after_next, Sums *sums, float *stat) {
    wait_for_copies();
    __syncthreads(); /* its inputs are there, and the tile before it is done */
    copy_order(u, memory->row[(turn + 2) % 3], after_next);
    copy_rows(u, memory->tile.x[(turn + 1) & 1], memory->row[(turn + 1) % 3], memory->data + ((turn + 1) & 1));
    if (threadIdx.x < 64 * STRIPS)
        learn_strip(u, &memory->weights, &memory->tile, turn, memory->data + (turn & 1), memory->row[turn % 3], sums, stat, 1.0f / (float)work.size);
    __syncthreads();
    add_gradients(&memory->tile, turn, sums);
}

/* --- the step of Adam ---------------------------------------------------------------------------------------- */

enum { FOURS = WEIGHTS / 4, ADDERS = 8, BATCH = 9 }; /* weights are added four at a time, by eight threads; loads of a batch start at once */

/* The first four weights of a block's share, counted in fours. */
DEVICE int share_start(int block) { return (int)((long long)FOURS * block / (int)gridDim.x); }

DEVICE float add_over_adders(float x) {
    for (int step = ADDERS / 2; step; step >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* Four weights of a step: the sum of their gradients, and what Adam changes. */
typedef struct { Four g, w, first, second; } Step;

/* The four that a thread changes in the `round`-th round, if it is below `share_start(blockIdx.x + 1)`. */
DEVICE int own_four(int round) { return share_start(blockIdx.x) + round * (THREADS / ADDERS) + (int)threadIdx.x / ADDERS; }

DEVICE Step load_step(const UpdateArguments *u, int four, Four g) {
    return {g, load_four(u->weights + 4 * four), load_four(u->first + 4 * four), load_four(u->second + 4 * four)};
}

/* The sum of one four over the blocks, in all adders. */
DEVICE Four add_four(const UpdateArguments *u, int four, int used) {
    Four sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int first = threadIdx.x % ADDERS; first < used; first += BATCH * ADDERS) {
        Four part[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const int b = first + n * ADDERS;
            part[n] = b < used ? load_four(u->partial + (long long)b * WEIGHTS + 4 * four) : Four{0.0f, 0.0f, 0.0f, 0.0f};
        }
#pragma unroll
        for (int n = 0; n < BATCH; n++) sum.x += part[n].x, sum.y += part[n].y, sum.z += part[n].z, sum.w += part[n].w;
    }
    return sum;
}

/* This block's share of the summed gradient: into `partial` of block 0, its squares into `block_sums`. The step of the first
 * round, which most networks need only, is loaded. */
DEVICE Step add_partials(const UpdateArguments *u, UpdateMemory *memory, int tiles, double kl) {
    const int to = share_start(blockIdx.x + 1), used = tiles < (int)gridDim.x ? tiles : (int)gridDim.x;
    const bool changes = threadIdx.x % ADDERS == 0; /* one of the adders changes the weights */
    double squares = 0.0;
    Step step = {};
    for (int round = 0; share_start(blockIdx.x) + round * (THREADS / ADDERS) < to; round++) {
        const int four = own_four(round);
        if (round == 0 && four < to && changes) step = load_step(u, four, step.g);
        Four sum = four < to ? add_four(u, four, used) : Four{0.0f, 0.0f, 0.0f, 0.0f};
        sum.x = add_over_adders(sum.x), sum.y = add_over_adders(sum.y), sum.z = add_over_adders(sum.z), sum.w = add_over_adders(sum.w);
        if (four >= to || !changes) continue;
        store_four(u->partial + 4 * four, sum); /* only these threads read or write these columns */
        squares += (double)sum.x * sum.x + (double)sum.y * sum.y + (double)sum.z * sum.z + (double)sum.w * sum.w;
        if (round == 0) step.g = sum;
    }
    squares = block_sum<ADDERS>(memory, squares);
    if (threadIdx.x == 0) {
        u->block_sums[2 * blockIdx.x] = squares;
        u->block_sums[2 * blockIdx.x + 1] = kl;
    }
    return step;
}

/* totals of `block_sums`, the same in all blocks */
DEVICE void add_block_sums(const UpdateArguments *u, UpdateMemory *memory) {
    if (threadIdx.x < 32) {
        enum { EACH = 3 }; /* loads that start at once */
        double squares = 0.0, kl = 0.0;
        for (int first = threadIdx.x; first < (int)gridDim.x; first += 32 * EACH) {
            double part[EACH][2];
#pragma unroll
            for (int n = 0; n < EACH; n++)
                for (int s = 0; s < 2; s++) part[n][s] = first + 32 * n < (int)gridDim.x ? load_fresh(u->block_sums + 2 * (first + 32 * n) + s) : 0.0;
#pragma unroll
            for (int n = 0; n < EACH; n++) squares += part[n][0], kl += part[n][1];
        }
        for (int step = 16; step; step >>= 1) {
            squares += __shfl_xor_sync(0xFFFFFFFFu, squares, step);
            kl += __shfl_xor_sync(0xFFFFFFFFu, kl, step);
        }
        if (threadIdx.x == 0) memory->total[0] = squares, memory->total[1] = kl;
    }
    __syncthreads();
}

/* Adam (Kingma and Ba 2015, algorithm 1) of one weight. */
DEVICE float adam(const UpdateArguments *u, const UpdateMemory *memory, int i, float g, float w, float *first, float *second) {
    *first += 0.1f * (g - *first);
    *second += 0.001f * (g * g - *second);
    w -= memory->rate * *first / (sqrtf(*second * memory->unbias) + 1e-5f);
    return i >= LOG_STD_AT ? fminf(fmaxf(w, u->log_std_low), u->log_std_high) : w;
}

/* The step of this block's share; log_std stays within its bounds. */
DEVICE void adam_step(const UpdateArguments *u, const UpdateMemory *memory, Step step, float scale) {
    if (threadIdx.x % ADDERS) return;
#pragma unroll 1
    for (int round = 0, four = own_four(0); four < share_start(blockIdx.x + 1); four = own_four(++round)) {
        if (round) step = load_step(u, four, load_four(u->partial + 4 * four));
        const int i = 4 * four;
        Four g = step.g, w = step.w;
        w.x = adam(u, memory, i, g.x * scale, w.x, &step.first.x, &step.second.x);
        w.y = adam(u, memory, i + 1, g.y * scale, w.y, &step.first.y, &step.second.y);
        w.z = adam(u, memory, i + 2, g.z * scale, w.z, &step.first.z, &step.second.z);
        w.w = adam(u, memory, i + 3, g.w * scale, w.w, &step.first.w, &step.second.w);
        store_four(u->weights + i, w);
        store_four(u->first + i, step.first);
        store_four(u->second + i, step.second);
        place_weights(u->packed, i, w);
    }
}

/* grid (blocks, roles), all blocks resident at once. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) update(const UpdateArguments *roles) {
    SHARED_MEMORY;
    UpdateMemory *memory = (UpdateMemory *)shared_memory;
    const UpdateArguments *u = &memory->arguments; /* in shared memory, with the small arrays that the loss reads */
    if (threadIdx.x == 0) {
        memory->arguments = roles[blockIdx.y];
        for (int i = 0; i < 2; i++) memory->scaling[i] = u->scaling[i];
        for (int a = 0; a < ACTIONS && u->magnet_log_std; a++) memory->magnet_log_std[a] = u->magnet_log_std[a];
        memory->arguments.scaling = memory->scaling;
        memory->arguments.magnet_log_std = memory->magnet_log_std;
        memory->norms = memory->clipped_norms = memory->kl_sum = 0.0;
    }
    __syncthreads();
    const int count = *u->count, before = *u->updates;
    unsigned arrivals = 0;
    int updates = 0;
    float stat[STAT_MAGNET + 1] = {};
    if (threadIdx.x == 0) {
        memory->decay1 = pow(0.9, (double)before);
        memory->decay2 = pow(0.999, (double)before);
    }
    Work work = {0, 0, count > 0 && u->epochs > 0 ? minibatch_size(u, count, 0) : 0, (int)blockIdx.x};
    Work next = next_work(u, count, work);
    copy_order(u, memory->row[0], work);
    copy_order(u, memory->row[1], next);
    wait_for_copies();
    wait_for_blocks(u->barrier, &arrivals); /* all have read `updates` */
    copy_rows(u, memory->tile.x[0], memory->row[0], memory->data);
    for (int turn = 0; work.size > 0;) {
        const Work minibatch = work;
        Sums sums = {};
        load_weights<THREADS>(&memory->weights, u->packed);
        do { /* a block without a tile computes one without rows */
            const Work after_next = next_work(u, count, next);
            compute_tile(u, memory, turn++, work, after_next, &sums, stat);
            work = next, next = after_next;
        } while (work.at == minibatch.at && work.epoch == minibatch.epoch && work.size > 0);
        const float kl_of_block = store_sums(u, memory, &sums);
        wait_for_blocks(u->barrier, &arrivals);
        const Step step = add_partials(u, memory, (minibatch.size + TILE - 1) / TILE, kl_of_block);
        if (threadIdx.x == THREADS - 32) {
            memory->decay1 *= 0.9;
            memory->decay2 *= 0.999;
            memory->rate = (float)(u->lr / (1.0 - memory->decay1));
            memory->unbias = (float)(1.0 / (1.0 - memory->decay2));
        }
        wait_for_blocks(u->barrier, &arrivals);
        add_block_sums(u, memory);
        const float norm = sqrtf((float)memory->total[0]), kl = (float)memory->total[1] / (float)minibatch.size;
        const float scale = u->max_norm > 0.0f && norm > u->max_norm ? u->max_norm / norm : 1.0f;
        if (!(norm < 1e18f)) { /* its square is a float */
            if (threadIdx.x == 0) *u->failed = BAD_GRADIENT;
            return; /* all blocks of the role do */
        }
        updates++;
        if (threadIdx.x == 0) {
            memory->norms += norm;
            memory->clipped_norms += norm * scale;
            memory->kl_sum += kl;
        }
        adam_step(u, memory, step, scale);
        wait_for_blocks(u->barrier, &arrivals);
        if (u->target_kl > 0.0f && kl > 1.5f * u->target_kl) break;
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s <= STAT_MAGNET; s++) {
        double total = block_sum<1>(memory, stat[s]);
        __syncthreads(); /* before the sums of the warps change */
        if (threadIdx.x == 0) u->stats[(long long)blockIdx.x * STATS + s] = total;
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        u->stats[STAT_KL] = memory->kl_sum;
        u->stats[STAT_NORM] = memory->norms;
        u->stats[STAT_CLIPPED_NORM] = memory->clipped_norms;
        u->stats[STAT_UPDATES] = updates;
        *u->updates = before + updates;
    }
}

#endif
