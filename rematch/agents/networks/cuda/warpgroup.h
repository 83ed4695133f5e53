/* Products on the tensor cores of Hopper by four warps together, a warpgroup: wgmma, bfloat16 inputs, float sums.
 *
 * A matrix in shared memory is made of blocks of 8 x 8 numbers, 128 bytes each, row by row; the steps between blocks are free.
 * The same bytes serve as a factor along its rows and along its columns, so nothing is ever transposed. Sums and left factors
 * in registers have the order of mma.sync m16n8k16: warp w has rows 16 w + lane / 4 and + 8, columns 8 n + 2 (lane % 4) and
 * the next. Tests compile these functions for the CPU (EMULATED, cuda_on_cpu.h). */
#ifndef REMATCH_WARPGROUP_H
#define REMATCH_WARPGROUP_H

#include "warp.h"

enum { GROUP = 128 }; /* threads of a warpgroup */

/* A factor in shared memory from its first number on; the steps, in numbers, lead to the next block along the sum (k) and
 * across it (rows of the left factor, columns of the right one). */
typedef struct { const half_float *at; int along, across; } Factor;

#ifndef EMULATED
DEVICE uint64_t descriptor(Factor f) {
    return (uint64_t)(shared_address(f.at) >> 4) | (uint64_t)(f.along >> 3) << 16 | (uint64_t)(f.across >> 3) << 32;
}

/* What this thread wrote to shared memory becomes visible to tensor cores; a barrier must follow. */
DEVICE void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
/* Before products whose sums or factors in registers were written by other instructions. */
DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
DEVICE void wait_for_products() {
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" : : : "memory");
}
DEVICE void group_barrier(int group) { asm volatile("bar.sync %0, 128;" : : "r"(1 + group) : "memory"); }

#define SUM(n) "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
#define SUMS_8 SUM(0)
#define SUMS_32 SUMS_8, SUM(1), SUM(2), SUM(3)
#define SUMS_64 SUMS_32, SUM(4), SUM(5), SUM(6), SUM(7)
#define NAMES_8 "{%0,%1,%2,%3}"
#define NAMES_32 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define NAMES_64 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
/* Names of the operands behind the sums: left factor, right factor, "add", then how factors are stored. */
#define FROM_REGISTERS(columns, a0, a1, a2, a3, b, add, by_k) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns \
                 "k16.f32.bf16.bf16 " NAMES_##columns ", {" a0 "," a1 "," a2 "," a3 "}, " b ", p, 1, 1, " by_k ";\n}" \
                 : SUMS_##columns : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"((int)adds), "n"((int)B_BY_K))
#define FROM_MEMORY(columns, a, b, add, a_by_k, b_by_k) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns \
                 "k16.f32.bf16.bf16 " NAMES_##columns ", " a ", " b ", p, 1, 1, " a_by_k ", " b_by_k ";\n}" \
                 : SUMS_##columns : "l"(left), "l"(right), "r"((int)adds), "n"((int)A_BY_K), "n"((int)B_BY_K))

/* sum = A B, or sum += A B where it `adds`, over 16 numbers along k. A factor that is stored BY_K is an array [k][row or
 * column], else [row or column][k]. */
template <int COLUMNS, bool B_BY_K> DEVICE void multiply_16(float (*sum)[4], const unsigned left[4], Factor b, bool adds) {
    const uint64_t right = descriptor(b);
    if (COLUMNS == 8) FROM_REGISTERS(8, "%4", "%5", "%6", "%7", "%8", "%9", "%10");
    else if (COLUMNS == 32) FROM_REGISTERS(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22");
    else FROM_REGISTERS(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38");
}
template <int COLUMNS, bool A_BY_K, bool B_BY_K> DEVICE void multiply_16(float (*sum)[4], Factor a, Factor b, bool adds) {
    const uint64_t left = descriptor(a), right = descriptor(b);
    if (COLUMNS == 8) FROM_MEMORY(8, "%4", "%5", "%6", "%7", "%8");
    else if (COLUMNS == 32) FROM_MEMORY(32, "%16", "%17", "%18", "%19", "%20");
    else FROM_MEMORY(64, "%32", "%33", "%34", "%35", "%36");
}
#endif

/* The factor `k` numbers further along the sum, or `n` further across it; multiples of 8. */
DEVICE Factor along(Factor f, int k) { return {f.at + k / 8 * f.along, f.along, f.across}; }
DEVICE Factor across(Factor f, int n) { return {f.at + n / 8 * f.across, f.along, f.across}; }

/* The same over DEPTH numbers. */
template <int COLUMNS, bool A_BY_K, bool B_BY_K, int DEPTH> DEVICE void multiply(float (*sum)[4], Factor a, Factor b, bool adds) {
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) multiply_16<COLUMNS, A_BY_K, B_BY_K>(sum, along(a, k), along(b, k), adds || k);
}

/* The left factor in registers: in [j] columns 16 j to 16 j + 15 (Strip of network.h). */
template <int COLUMNS, bool B_BY_K, int DEPTH> DEVICE void multiply(float (*sum)[4], const unsigned (*a)[4], Factor b, bool adds) {
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) multiply_16<COLUMNS, B_BY_K>(sum, a[k / 16], along(b, k), adds || k);
}

/* Any number of columns, a multiple of 32. */
template <int COLUMNS, bool A_BY_K, bool B_BY_K, int DEPTH> DEVICE void multiply_wide(float (*sum)[4], Factor a, Factor b) {
#pragma unroll
    for (int n = 0; n + 64 <= COLUMNS; n += 64) multiply<64, A_BY_K, B_BY_K, DEPTH>(sum + n / 8, a, across(b, n), false);
    if (COLUMNS % 64) multiply<32, A_BY_K, B_BY_K, DEPTH>(sum + COLUMNS / 64 * 8, a, across(b, COLUMNS / 64 * 64), false);
}

#endif
