/* Proximal policy optimization: all minibatches of all epochs of an iteration in one launch.
 *
 * Some blocks of a launch serve one learner; the learners of all roles and seeds learn side by side. For each minibatch the
 * blocks share its tiles, write sums of the gradient to memory, wait for each other, and add those sums. Then each block
 * makes the Adam step of its share of the weights. The readable loss is agents/learners/ppo.py.
 *
 * No result depends on timing or on the number of blocks: tile t belongs to group t % GROUPS, the tiles of a group are added
 * in order, groups g, g + ADDERS, g + 2 ADDERS ... are added in order, and those ADDERS sums as a tree. */
#ifndef REMATCH_PPO_H
#define REMATCH_PPO_H

#include "ppo_gradient.h"

enum { GROUPS = 64, ADDERS = 8 }; /* see above; a learner has at most GROUPS blocks */
enum { FOURS = WEIGHTS / 4, CHUNK = 32, CHUNKS = (FOURS + CHUNK - 1) / CHUNK }; /* weights are added four at a time, squares in chunks of fours */

typedef struct {
    Weights weights; /* first: its matrices are aligned to 16 bytes */
    Tile tile;
    RowData data[2];          /* of this tile and of the next */
    int row[3][TILE];         /* of this tile, of the next and of the one after it */
    UpdateArguments arguments;
    float magnet_log_std[ACTIONS], magnet_inv_var[ACTIONS];
    float rate, unbias;
    double warp_sum[THREADS / 32], total[2];
    double norms, clipped_norms, decay1, decay2; /* of thread 0 */
} UpdateMemory;

/* The minibatches of an iteration in order, and the tiles of one of them that this block computes: it adds up whole chains
 * of tiles, chain, chain + chains, chain + 2 chains ...; `chains` is a power of two. `number` counts minibatches. */
typedef struct { int number, epoch, at, size, tile; } Work;

/* --- sums in a fixed order --------------------------------------------------------------------------- */

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

DEVICE void add_sums(Sums *to, const Sums *tile) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) to->matrix[m][n][i] += tile->matrix[m][n][i];
#pragma unroll
    for (int m = 0; m < HEADS / 16; m++)
#pragma unroll
        for (int n = 0; n < HEAD_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) to->head[m][n][i] += tile->head[m][n][i];
#pragma unroll
    for (int m = 0; m < BIASES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) to->bias[m][i] += tile->bias[m][i];
}

/* Write the sums of a chain of tiles to its place; `log_std` is that of thread a. */
DEVICE void store_sums(const UpdateArguments *u, int chain, const Sums *sums, float log_std) {
    const int warp = threadIdx.x >> 5, group = warp & 1, side = (warp & 7) >> 1;
    float *out = u->partial + (long long)chain * WEIGHTS;
    if (warp < 8) {
        store_matrix<W1_ROWS, W1_TILES>(out + W1_AT, warp, sums);
        if (side == 0) store_row_sums<W1_ROWS>(out + B1_AT, WIDTH1, group * (WIDTH1 / 2), sums->bias);
    } else {
        store_matrix<W2_ROWS, W2_TILES>(out + W2_AT, warp - 8, sums);
        store_head(out + HEAD_AT, (warp - 8) * 8 * HEAD_TILES, sums);
        if (side == 0) store_row_sums<W2_ROWS>(out + B2_AT, WIDTH2, group * (WIDTH2 / 2), sums->bias);
        if (warp == 15) store_row_sums<HEADS / 16>(out + HEAD_BIAS_AT, OUTPUTS, 0, sums->bias);
    }
    const int i = LOG_STD_AT + threadIdx.x;
    if (i < WEIGHTS) out[i] = i < WEIGHTS_END ? log_std : 0.0f;
}

/* --- the tiles of a block ---------------------------------------------------------------------------------- */

DEVICE int minibatch_size(const UpdateArguments *u, int count, int at) { return count - at < u->minibatch ? count - at : u->minibatch; }

/* The next minibatch; its size is 0 after the last one. */
DEVICE Work next_minibatch(const UpdateArguments *u, int count, Work work) {
    work.number++;
    work.at += u->minibatch;
    if (work.at >= count) work.at = 0, work.epoch++;
    work.size = work.epoch < u->epochs ? minibatch_size(u, count, work.at) : 0;
    work.tile = blockIdx.x;
    return work;
}

/* What the block computes after this tile: the next one of its chain, the first of another chain or of the next minibatch. */
DEVICE Work next_work(const UpdateArguments *u, int count, int chains, Work work) {
    work.tile += chains;
    if (work.tile * TILE < work.size) return work;
    work.tile = (work.tile & (chains - 1)) + gridDim.x;
    return work.tile < chains && work.tile * TILE < work.size ? work : next_minibatch(u, count, work);
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
    for (int i = threadIdx.x; i < TILE * RECORD / 4; i += THREADS) {
        const int row = rows[i / (RECORD / 4)];
        if (row >= 0) copy_16_ahead(data->number + 4 * i, u->records + (long long)row * RECORD + i % (RECORD / 4) * 4);
    }
}

/* Compute a tile, the `turn`-th of this block; meanwhile copy the next one, and find the rows of the one after it. */
DEVICE void compute_tile(const UpdateArguments *u, UpdateMemory *memory, int turn, Work work, Work after_next, Sums *sums) {
    wait_for_copies();
    __syncthreads(); /* its inputs are there, and the tile before it is done */
    copy_order(u, memory->row[(turn + 2) % 3], after_next);
    copy_rows(u, memory->tile.x[(turn + 1) & 1], memory->row[(turn + 1) % 3], memory->data + ((turn + 1) & 1));
    if (threadIdx.x < 64 * STRIPS)
        learn_strip(u, &memory->weights, &memory->tile, turn, memory->data + (turn & 1), memory->row[turn % 3], 1.0f / (float)work.size);
    __syncthreads();
    add_gradients(&memory->tile, turn, sums);
}

/* --- the step of Adam ---------------------------------------------------------------------------------------- */

enum { BATCH = GROUPS / ADDERS }; /* loads of a thread that start at once */

/* Four weights of a step: the sum of their gradients, and what Adam changes. */
typedef struct { Four g, w, first, second; } Step;

/* The four that a thread changes in the `round`-th round, LANES threads each; none from FOURS on. */
template <int LANES> DEVICE int own_four(int round) { return (round * (int)gridDim.x + (int)blockIdx.x) * (THREADS / LANES) + (int)threadIdx.x / LANES; }

DEVICE Step load_step(const UpdateArguments *u, int four, Four g) {
    return {g, load_four(u->weights + 4 * four), load_four(u->first + 4 * four), load_four(u->second + 4 * four)};
}

DEVICE Four plus(Four a, Four b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

/* The sum of one four over all tiles. LANES is ADDERS where memory has a sum per group: each adder adds its groups, and all
 * adders have the result; it is 1 where memory has a sum per adder. The additions are the same. */
template <int LANES> DEVICE Four add_four(const UpdateArguments *u, int four, int tiles) {
    Four part[BATCH], sum = {0.0f, 0.0f, 0.0f, 0.0f};
    const int used = tiles < GROUPS ? tiles : GROUPS;
#pragma unroll
    for (int n = 0; n < BATCH; n++) {
        const int chain = LANES == 1 ? n : (int)threadIdx.x % ADDERS + n * ADDERS;
        part[n] = chain < used ? load_four(u->partial + (long long)chain * WEIGHTS + 4 * four) : sum;
    }
    if (LANES == 1) return plus(plus(plus(part[0], part[4]), plus(part[2], part[6])), plus(plus(part[1], part[5]), plus(part[3], part[7])));
#pragma unroll
    for (int n = 0; n < BATCH; n++) sum = plus(sum, part[n]);
#pragma unroll
    for (int step = ADDERS / 2; step; step >>= 1) {
        sum.x += __shfl_xor_sync(0xFFFFFFFFu, sum.x, step);
        sum.y += __shfl_xor_sync(0xFFFFFFFFu, sum.y, step);
        sum.z += __shfl_xor_sync(0xFFFFFFFFu, sum.z, step);
        sum.w += __shfl_xor_sync(0xFFFFFFFFu, sum.w, step);
    }
    return sum;
}

/* The squares of the fours of a round, added chunk by chunk as a tree over neighbours. */
template <int LANES> DEVICE void add_squares(const UpdateArguments *u, UpdateMemory *memory, int round, Four g) {
    double squares = (double)g.x * g.x + (double)g.y * g.y + ((double)g.z * g.z + (double)g.w * g.w);
#pragma unroll
    for (int step = LANES; step < 32; step <<= 1) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, step);
    const int chunk = own_four<LANES>(round) / CHUNK;
    if (LANES == 1) {
        if ((threadIdx.x & 31) == 0 && chunk < CHUNKS) u->chunk_sums[chunk] = squares;
        return;
    }
    if ((threadIdx.x & 31) == 0) memory->warp_sum[threadIdx.x >> 5] = squares;
    __syncthreads();
    if (threadIdx.x % (CHUNK * LANES) == 0 && chunk < CHUNKS) {
        const double *part = memory->warp_sum + (threadIdx.x >> 5);
        u->chunk_sums[chunk] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    __syncthreads();
}

/* This block's share of the summed gradient: into the first sums of `partial`, its squares into `chunk_sums`. The step of
 * the first round, which most networks need only, is loaded. */
template <int LANES> DEVICE Step add_partials(const UpdateArguments *u, UpdateMemory *memory, int tiles) {
    const Four zero = {0.0f, 0.0f, 0.0f, 0.0f};
    Step step = {zero, zero, zero, zero};
    for (int round = 0; (round * (int)gridDim.x + (int)blockIdx.x) * (THREADS / LANES) < FOURS; round++) {
        const int four = own_four<LANES>(round);
        const bool changes = four < FOURS && threadIdx.x % LANES == 0; /* one of the adders changes the weights */
        if (round == 0 && changes) step = load_step(u, four, zero);
        const Four sum = add_four<LANES>(u, four < FOURS ? four : 0, tiles);
        add_squares<LANES>(u, memory, round, four < FOURS ? sum : zero);
        if (!changes) continue;
        store_four(u->partial + 4 * four, sum); /* only these threads read or write these columns */
        if (round == 0) step.g = sum;
    }
    return step;
}

/* The sums of `count` numbers, the same in all blocks, by one warp: in all lanes. */
template <class T> DEVICE double warp_total(const T *numbers, int count, int stride) {
    enum { EACH = 4 }; /* loads that start at once */
    double total = 0.0;
    for (int first = threadIdx.x & 31; first < count; first += 32 * EACH) {
        T part[EACH];
#pragma unroll
        for (int n = 0; n < EACH; n++) part[n] = first + 32 * n < count ? load_fresh(numbers + (long long)(first + 32 * n) * stride) : (T)0;
#pragma unroll
        for (int n = 0; n < EACH; n++) total += (double)part[n];
    }
    for (int step = 16; step; step >>= 1) total += __shfl_xor_sync(0xFFFFFFFFu, total, step);
    return total;
}

DEVICE int tiles_of(int rows) { return (rows + TILE - 1) / TILE; }

/* The square of the gradient's norm, and the KL divergence of the minibatch where it ends the epochs. */
DEVICE void add_totals(const UpdateArguments *u, UpdateMemory *memory, int number, int size) {
    if (threadIdx.x < 32) {
        const double squares = warp_total(u->chunk_sums, CHUNKS, 1);
        if (threadIdx.x == 0) memory->total[0] = squares;
    } else if (threadIdx.x < 64 && u->target_kl > 0.0f) {
        const float *kls = u->tile_stats + (long long)number * tiles_of(u->minibatch) * ROW_STATS + STAT_KL;
        const double kl = warp_total(kls, tiles_of(size), ROW_STATS);
        if (threadIdx.x == 32) memory->total[1] = kl;
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
template <int LANES> DEVICE void adam_step(const UpdateArguments *u, const UpdateMemory *memory, Step step, float scale) {
    if (threadIdx.x % LANES) return;
#pragma unroll 1
    for (int round = 0, four = own_four<LANES>(0); four < FOURS; four = own_four<LANES>(++round)) {
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

/* The statistics of a tile to memory; thread a adds what its rows add to the gradient of log_std. */
DEVICE float add_row_sums(const UpdateArguments *u, const Tile *tile, Work work) {
    const int s = (int)threadIdx.x - 64;
    float total = 0.0f;
    if (s >= 0 && s < ROW_STATS && work.tile * TILE < work.size) {
        for (int n = 0; n < STRIPS; n++) total += tile->sums[n].stat[s];
        u->tile_stats[((long long)work.number * tiles_of(u->minibatch) + work.tile) * ROW_STATS + s] = total;
    }
    if (DISCRETE || threadIdx.x >= ACTIONS) return 0.0f;
    total = 0.0f;
    for (int n = 0; n < STRIPS; n++) total += tile->sums[n].log_std[threadIdx.x];
    return total;
}

/* grid (blocks, learners), all blocks resident at once. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) update(const UpdateArguments *learners) {
    SHARED_MEMORY;
    UpdateMemory *memory = (UpdateMemory *)shared_memory;
    const UpdateArguments *u = &memory->arguments; /* in shared memory, with the small arrays that the loss reads */
    if (!learners[blockIdx.y].active) return;
    if (threadIdx.x == 0) {
        memory->arguments = learners[blockIdx.y];
        for (int a = 0; a < ACTIONS && u->magnet_log_std; a++) {
            memory->magnet_log_std[a] = u->magnet_log_std[a];
            memory->magnet_inv_var[a] = expf(-2.0f * u->magnet_log_std[a]);
        }
        memory->arguments.magnet_log_std = memory->magnet_log_std;
        memory->arguments.magnet_inv_var = memory->magnet_inv_var;
        memory->norms = memory->clipped_norms = 0.0;
    }
    __syncthreads();
    const int count = *u->count, before = *u->updates;
    const bool few = gridDim.x <= ADDERS && u->minibatch <= GROUPS * TILE; /* a sum per adder is enough */
    const int chains = few ? ADDERS : GROUPS;
    unsigned arrivals = 0;
    int updates = 0;
    if (threadIdx.x == 0) {
        memory->decay1 = pow(0.9, (double)before);
        memory->decay2 = pow(0.999, (double)before);
    }
    Work work = {0, 0, 0, count > 0 && u->epochs > 0 ? minibatch_size(u, count, 0) : 0, (int)blockIdx.x};
    Work next = next_work(u, count, chains, work);
    copy_order(u, memory->row[0], work);
    copy_order(u, memory->row[1], next);
    wait_for_copies();
    wait_for_blocks(u->barrier, &arrivals); /* all have read `updates` */
    copy_rows(u, memory->tile.x[0], memory->row[0], memory->data);
    for (int turn = 0; work.size > 0;) {
        const int number = work.number, size = work.size;
        Sums sums = {};
        float log_std = 0.0f;
        load_weights<THREADS>(&memory->weights, u->packed);
        do { /* a block without a tile computes one without rows */
            const Work after_next = next_work(u, count, chains, next);
            Sums tile = {};
            compute_tile(u, memory, turn++, work, after_next, &tile);
            add_sums(&sums, &tile);
            log_std += add_row_sums(u, &memory->tile, work);
            if (next.number != number || (next.tile & (chains - 1)) != (work.tile & (chains - 1))) { /* the chain ends */
                if (work.tile * TILE < size) store_sums(u, work.tile & (chains - 1), &sums, log_std);
                sums = {};
                log_std = 0.0f;
            }
            work = next, next = after_next;
        } while (work.number == number && work.size > 0);
        wait_for_blocks(u->barrier, &arrivals);
        const Step step = few ? add_partials<1>(u, memory, tiles_of(size)) : add_partials<ADDERS>(u, memory, tiles_of(size));
        if (threadIdx.x == THREADS - 32) {
            memory->decay1 *= 0.9;
            memory->decay2 *= 0.999;
            memory->rate = (float)(u->lr / (1.0 - memory->decay1));
            memory->unbias = (float)(1.0 / (1.0 - memory->decay2));
        }
        wait_for_blocks(u->barrier, &arrivals);
        add_totals(u, memory, number, size);
        const float norm = sqrtf((float)memory->total[0]);
        const float scale = u->max_norm > 0.0f && norm > u->max_norm ? u->max_norm / norm : 1.0f;
        if (!(norm < 1e18f)) { /* its square is a float */
            if (threadIdx.x == 0) *u->failed = BAD_GRADIENT;
            return; /* all blocks of the learner do */
        }
        updates++;
        if (threadIdx.x == 0) {
            memory->norms += norm;
            memory->clipped_norms += norm * scale;
        }
        if (few) adam_step<1>(u, memory, step, scale);
        else adam_step<ADDERS>(u, memory, step, scale);
        const bool far = u->target_kl > 0.0f && (float)memory->total[1] > 1.5f * u->target_kl;
        wait_for_blocks(u->barrier, &arrivals);
        if (far) break;
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        u->numbers[STAT_NORM] = memory->norms;
        u->numbers[STAT_CLIPPED_NORM] = memory->clipped_norms;
        u->numbers[STAT_UPDATES] = updates;
        *u->updates = before + updates;
    }
}

#endif
