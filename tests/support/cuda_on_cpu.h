/* Runs CUDA kernels on the CPU, so that tests without a GPU check what they compute.
 *
 * Every thread of the grid is a fiber with a stack of its own. A fiber runs until it waits: for its block (__syncthreads), for
 * its warp (shuffles, votes, tensor-core products) or for other blocks; then the next one runs. Slow and deterministic.
 * A fiber begins by setcontext and changes by _longjmp, which makes no system call; swapcontext makes two. */
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H

#undef _FORTIFY_SOURCE /* it takes a jump to another stack for an error */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define EMULATED
#define DEVICE static inline
#define __global__
#define __device__
#define __launch_bounds__(...)
#define SHARED_MEMORY unsigned char *shared_memory = current->block->shared

struct Index { int x, y; };
struct Group { int waiting = 0, round = 0, alive = 0; };
struct Warp : Group { uint64_t lane[32][8]; };
struct Block : Group {
    Index index;
    Group pair[16]; /* of pair_barrier */
    unsigned char *shared;
    std::vector<Warp> warps;
};
struct Fiber {
    jmp_buf place; /* where it waits */
    Block *block;
    int thread;
    bool begun = false, done = false;
    std::function<void()> body;
};

static jmp_buf scheduler;
static Fiber *current;
static int grid_width, block_width;

static void yield_fiber() {
    if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

#define threadIdx (Index{current->thread, 0})
#define blockIdx (current->block->index)
#define blockDim (Index{block_width, 1})
#define gridDim (Index{grid_width, 1})

/* All fibers that count themselves in `waiting` have arrived. */
static void wait_for_group(Group *group) {
    int round = group->round;
    if (++group->waiting == group->alive) {
        group->waiting = 0;
        group->round++;
    }
    while (group->round == round) yield_fiber();
}
static void __syncthreads() { wait_for_group(current->block); }
static void __threadfence() {}
#define NOT_INLINED static
static void pair_barrier(int pair) {
    current->block->pair[pair].alive = 64;
    wait_for_group(&current->block->pair[pair]);
}

static void group_barrier(int group) {
    current->block->pair[8 + group].alive = 128;
    wait_for_group(&current->block->pair[8 + group]);
}

static Warp *own_warp() { return &current->block->warps[current->thread / 32]; }

static void __syncwarp() { wait_for_group(own_warp()); }

/* Each lane shows eight words to its warp. */
static void show(const void *words, size_t bytes) {
    memcpy(own_warp()->lane[current->thread % 32], words, bytes);
    wait_for_group(own_warp());
}
static void shown() { wait_for_group(own_warp()); } /* nobody reads the words any more */

template <class T> static T __shfl_xor_sync(unsigned, T x, int mask) {
    T other;
    show(&x, sizeof x);
    memcpy(&other, own_warp()->lane[(current->thread % 32) ^ mask], sizeof other);
    shown();
    return other;
}
template <class T> static T __shfl_up_sync(unsigned, T x, int distance) {
    const int lane = current->thread % 32;
    T other;
    show(&x, sizeof x);
    memcpy(&other, own_warp()->lane[lane < distance ? lane : lane - distance], sizeof other);
    shown();
    return other;
}
static unsigned __ballot_sync(unsigned, bool vote) {
    unsigned votes = 0, mine = vote;
    show(&mine, sizeof mine);
    for (int lane = 0; lane < 32; lane++) votes |= (unsigned)(own_warp()->lane[lane][0] & 1u) << lane;
    shown();
    return votes;
}
static int atomicCAS(int *p, int expected, int value) {
    const int found = *p;
    if (found == expected) *p = value;
    return found;
}
static int atomicAdd(int *p, int x) {
    const int old = *p;
    *p += x;
    return old;
}
static void atomicAdd(unsigned long long *p, unsigned long long x) { *p += x; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __ffsll(long long x) { return __builtin_ffsll(x); }
static int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }

/* --- what warp.h has in assembly ---------------------------------------------------------------------- */

static uint16_t to_half(float x) {
    unsigned bits = __float_as_uint(x);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
static unsigned two_halves(float low, float high) { return (unsigned)to_half(low) | (unsigned)to_half(high) << 16; }
struct Four { float x, y, z, w; };
static Four load_four(const float *p) { return {p[0], p[1], p[2], p[3]}; }
static void store_four(float *p, Four four) { memcpy(p, &four, 16); }
template <class T> static void copy_ahead(T *shared, const T *global) { *shared = *global; }
static void copy_16_ahead(void *shared, const void *global) {
    if (((uint64_t)shared | (uint64_t)global) % 16) { fprintf(stderr, "cp.async: an address is not aligned to 16 bytes\n"); abort(); }
    memcpy(shared, global, 16);
}
static void wait_for_copies() {}
static void store_pair(float *p, float first, float second) { p[0] = first, p[1] = second; }
template <class T> static T load_fresh(const T *p) { return *p; }
template <class T> static T load_constant(const T *p) { return *p; }
static float tanh_near(float x) { return tanhf(x); }
static void arrive_and_wait(unsigned *counter, unsigned target) {
    ++*counter;
    while (*(volatile unsigned *)counter < target) yield_fiber();
}

/* Lane 8 i + r gives the address of row r of matrix i; lane l receives of each matrix row l / 4, columns 2 (l % 4) and the
 * next, or with `transposed` column l / 4, rows 2 (l % 4) and the next. */
static void load_eight_by_eight(unsigned out[4], const uint16_t *row, bool transposed) {
    int lane = current->thread % 32;
    uint64_t address = (uint64_t)row;
    if (address % 16) { fprintf(stderr, "ldmatrix: a row is not aligned to 16 bytes\n"); abort(); }
    show(&address, sizeof address);
    for (int matrix = 0; matrix < 4; matrix++) {
        uint16_t pair[2];
        for (int part = 0; part < 2; part++) {
            int r = transposed ? 2 * (lane % 4) + part : lane / 4, c = transposed ? lane / 4 : 2 * (lane % 4) + part;
            pair[part] = ((const uint16_t *)own_warp()->lane[8 * matrix + r][0])[c];
        }
        out[matrix] = (unsigned)pair[0] | (unsigned)pair[1] << 16;
    }
    shown();
}
static void load_matrices(unsigned out[4], const uint16_t *row) { load_eight_by_eight(out, row, false); }
static void load_transposed(unsigned out[4], const uint16_t *row) { load_eight_by_eight(out, row, true); }

static float half_at(uint64_t words, int index) { return __uint_as_float((unsigned)(uint16_t)(words >> 16 * index) << 16); }

/* mma.m16n8k16: A has rows g and g + 8 (g = lane / 4), columns 2 t, 2 t + 1 and those plus 8 (t = lane % 4). */
static void multiply_add(float sum[4], const unsigned a[4], const unsigned b[2]) {
    int lane = current->thread % 32;
    uint64_t words[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    show(words, sizeof words);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        for (int k = 0; k < 16; k++) {
            const uint64_t *left = own_warp()->lane[4 * (row % 8) + k % 8 / 2], *right = own_warp()->lane[4 * column + k % 8 / 2];
            sum[i] += half_at(left[row / 8 + 2 * (k / 8)], k % 2) * half_at(right[4 + k / 8], k % 2);
        }
    }
    shown();
}

/* --- what warpgroup.h has in assembly: products of four warps, each from its own 16 rows of the left factor ---------------- */

static void begin_products() {}
static void wait_for_products() {}
static void show_to_tensor_cores() {}

/* Numbers k and k + 1 of a factor, at row or column `line`. */
template <class Factor> static unsigned two_of(Factor f, bool by_k, int line, int k) {
    unsigned pair = 0;
    for (int i = 0; i < 2; i++, k++)
        pair |= (unsigned)f.at[k / 8 * f.along + line / 8 * f.across + (by_k ? k % 8 * 8 + line % 8 : line % 8 * 8 + k % 8)] << 16 * i;
    return pair;
}
template <int COLUMNS, bool B_BY_K, class Factor> static void multiply_16(float (*sum)[4], const unsigned left[4], Factor b, bool adds) {
    const int lane = current->thread % 32;
    for (int n = 0; n < COLUMNS / 8; n++) {
        const unsigned right[2] = {two_of(b, B_BY_K, 8 * n + lane / 4, 2 * (lane % 4)), two_of(b, B_BY_K, 8 * n + lane / 4, 2 * (lane % 4) + 8)};
        for (int i = 0; i < 4 && !adds; i++) sum[n][i] = 0.0f;
        multiply_add(sum[n], left, right);
    }
}
template <int COLUMNS, bool A_BY_K, bool B_BY_K, class Factor> static void multiply_16(float (*sum)[4], Factor a, Factor b, bool adds) {
    const int lane = current->thread % 32, row = current->thread / 32 % 4 * 16 + lane / 4, k = 2 * (lane % 4);
    const unsigned left[4] = {two_of(a, A_BY_K, row, k), two_of(a, A_BY_K, row + 8, k), two_of(a, A_BY_K, row, k + 8), two_of(a, A_BY_K, row + 8, k + 8)};
    multiply_16<COLUMNS, B_BY_K>(sum, left, b, adds);
}

/* --- a launch -------------------------------------------------------------------------------------------- */

static void fiber_main() {
    current->body();
    current->done = true;
    Block *block = current->block;
    block->alive--;
    own_warp()->alive--;
    yield_fiber();
}

/* Memory for the stack of fiber i; later launches use it again. */
static const size_t STACK_BYTES = 1 << 16;
static char *stack_of(size_t i) {
    static std::vector<char *> stacks;
    while (stacks.size() <= i) stacks.push_back((char *)malloc(STACK_BYTES));
    return stacks[i];
}

/* Runs a fiber until it waits or ends. */
static __attribute__((noinline)) void run_fiber(Fiber *fiber, size_t i) {
    current = fiber;
    if (_setjmp(scheduler)) return;
    if (fiber->begun) _longjmp(fiber->place, 1);
    fiber->begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_of(i);
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = nullptr; /* fiber_main does not return */
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

static void launch(Index grid, int threads, size_t shared_bytes, std::function<void()> body) {
    std::vector<Block> blocks((size_t)grid.x * grid.y);
    std::vector<Fiber> fibers(blocks.size() * threads);
    grid_width = grid.x, block_width = threads;
    for (size_t b = 0; b < blocks.size(); b++) {
        blocks[b].index = {(int)b % grid.x, (int)b / grid.x};
        blocks[b].shared = (unsigned char *)aligned_alloc(16, (shared_bytes + 15) / 16 * 16 + 16);
        memset(blocks[b].shared, 0xFF, shared_bytes); /* what nobody wrote is NaN */
        blocks[b].alive = threads;
        blocks[b].warps.resize((threads + 31) / 32);
        for (auto &warp : blocks[b].warps) warp.alive = 32;
        for (int t = 0; t < threads; t++) {
            Fiber &fiber = fibers[b * threads + t];
            fiber.block = &blocks[b], fiber.thread = t, fiber.body = body;
        }
    }
    for (bool running = true; running;) {
        running = false;
        for (size_t i = 0; i < fibers.size(); i++) {
            if (fibers[i].done) continue;
            running = true;
            run_fiber(&fibers[i], i);
        }
    }
    for (auto &block : blocks) free(block.shared);
}

/* A launch of a kernel whose threads never wait: they run one after the other, without fibers. */
template <class Body> static void launch_independent(Index grid, int threads, Body body) {
    Block block;
    Fiber fiber;
    fiber.block = &block;
    current = &fiber;
    grid_width = grid.x, block_width = threads;
    for (block.index.y = 0; block.index.y < grid.y; block.index.y++)
        for (block.index.x = 0; block.index.x < grid.x; block.index.x++)
            for (fiber.thread = 0; fiber.thread < threads; fiber.thread++) body();
}

#endif
