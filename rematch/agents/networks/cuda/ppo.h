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

#if WARPGROUPS
#include "ppo_groups.h"
#else
#include "ppo_tiles.h"
#endif

enum { FOURS = WEIGHTS / 4, CHUNK = 32, CHUNKS = (FOURS + CHUNK - 1) / CHUNK }; /* weights are added four at a time, squares in chunks of fours */

typedef struct {
    Weights weights; /* first: its matrices are aligned to 16 bytes */
    Tiles tiles;
    UpdateArguments arguments;
    float magnet_log_std[ACTIONS], magnet_inv_var[ACTIONS];
    float rate, unbias;
    double warp_sum[THREADS / 32], total[2];
    double norms, clipped_norms, decay1, decay2; /* of thread 0 */
} UpdateMemory;

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

/* --- the step of Adam ---------------------------------------------------------------------------------------- */

/* Four weights of a step: the sum of their gradients, and what Adam changes. */
typedef struct { Four g, w, first, second; } Step;

/* The four that a thread changes in the `round`-th round, LANES threads each; none from FOURS on. */
template <int LANES> DEVICE int own_four(int round) { return (round * (int)gridDim.x + (int)blockIdx.x) * (THREADS / LANES) + (int)threadIdx.x / LANES; }

DEVICE Step load_step(const UpdateArguments *u, int four, Four g) {
    return {g, load_four(u->weights + 4 * four), load_four(u->first + 4 * four), load_four(u->second + 4 * four)};
}

DEVICE Four plus(Four a, Four b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

/* The sum of one four over all tiles. LANES is ADD_LANES where memory has a sum per group: each lane adds the groups of some
 * adders, and all lanes have the result; it is 1 where memory has a sum per adder. The additions are the same. */
template <int LANES> DEVICE Four add_four(const UpdateArguments *u, int four, int tiles) {
    enum { EACH = ADDERS / LANES, DEPTH = LANES == 1 ? 1 : GROUPS / ADDERS };
    const int used = tiles < GROUPS ? tiles : GROUPS, lane = (int)threadIdx.x % LANES;
    Four part[EACH][DEPTH];
#pragma unroll
    for (int n = 0; n < EACH; n++)
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const int chain = lane + n * LANES + d * ADDERS;
            part[n][d] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (chain < used) part[n][d] = load_four(u->partial + (long long)chain * WEIGHTS + 4 * four);
        }
#pragma unroll
    for (int n = 0; n < EACH; n++)
#pragma unroll
        for (int d = 1; d < DEPTH; d++) part[n][0] = plus(part[n][0], part[n][d]);
#pragma unroll
    for (int half = EACH / 2; half; half >>= 1)
#pragma unroll
        for (int n = 0; n < half; n++) part[n][0] = plus(part[n][0], part[n + half][0]);
    Four sum = part[0][0];
#pragma unroll
    for (int step = LANES / 2; step; step >>= 1) {
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
    enum { WARPS = LANES }; /* of a chunk: CHUNK * LANES threads */
    if ((threadIdx.x & 31) == 0) memory->warp_sum[threadIdx.x >> 5] = squares;
    __syncthreads();
    if (threadIdx.x % (CHUNK * LANES) == 0 && chunk < CHUNKS) {
        double part[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++) part[w] = memory->warp_sum[(threadIdx.x >> 5) + w];
#pragma unroll
        for (int step = 1; step < WARPS; step *= 2)
#pragma unroll
            for (int w = 0; w + step < WARPS; w += 2 * step) part[w] += part[w + step];
        u->chunk_sums[chunk] = part[0];
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
    const bool few = WORKERS * gridDim.x <= ADDERS && u->minibatch <= GROUPS * TILE; /* a sum per adder is enough */
    const Share share = own_share(few ? ADDERS : GROUPS, count);
    unsigned arrivals = 0;
    int updates = 0;
    if (threadIdx.x == 0) {
        memory->decay1 = pow(0.9, (double)before);
        memory->decay2 = pow(0.999, (double)before);
    }
    Course course = first_course(u, &memory->tiles, share);
    wait_for_blocks(u->barrier, &arrivals); /* all have read `updates` */
    copy_first_rows(u, &memory->tiles);
    while (course.work.size > 0) {
        const int number = course.work.number, size = course.work.size;
        load_weights<THREADS>(&memory->weights, u->packed);
        compute_minibatch(u, &memory->weights, &memory->tiles, share, &course);
        wait_for_blocks(u->barrier, &arrivals);
        const Step step = few ? add_partials<1>(u, memory, tiles_of(size)) : add_partials<ADD_LANES>(u, memory, tiles_of(size));
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
        else adam_step<ADD_LANES>(u, memory, step, scale);
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
