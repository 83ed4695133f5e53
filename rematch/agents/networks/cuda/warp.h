/* Products of small matrices by one warp on tensor cores: bfloat16 inputs, float sums (mma.sync m16n8k16).
 *
 * A matrix in shared memory is an array of rows with a stride in numbers. The stride is 8 modulo 16, so that the eight
 * rows that `ldmatrix` reads at once lie in different banks. Compiled by NVRTC for the GPU; tests compile the same text
 * for the CPU (EMULATED), where the threads of a block take turns. */
#ifndef REMATCH_WARP_H
#define REMATCH_WARP_H

#ifndef EMULATED
typedef unsigned short uint16_t;
#define SHARED_MEMORY extern __shared__ __align__(16) unsigned char shared_memory[]
#define DEVICE static __device__ __forceinline__
#ifndef INFINITY
#define INFINITY __int_as_float(0x7F800000)
#endif
#endif

typedef uint16_t half_float; /* the bits of a bfloat16 */

DEVICE float to_float(half_float x) { return __uint_as_float((unsigned)x << 16); }

#ifndef EMULATED
/* To the nearest, ties to even. */
DEVICE unsigned two_halves(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE half_float to_half(float x) { return (half_float)two_halves(x, 0.0f); }

/* A number that no thread writes in this launch; such loads may start before stores that stand before them. */
template <class T> DEVICE T load_constant(const T *p) { return __ldg(p); }

/* A number that another block may have written in this launch: not from the first-level cache. */
DEVICE float load_fresh(const float *p) { return __ldcg(p); }
DEVICE double load_fresh(const double *p) { return __ldcg(p); }
typedef float4 Four;
DEVICE Four load_four(const float *p) { return __ldcg((const float4 *)p); } /* aligned to 16 bytes */
DEVICE void store_four(float *p, Four four) { *(float4 *)p = four; }
DEVICE void store_pair(float *p, float first, float second) { *(float2 *)p = make_float2(first, second); } /* to 8 bytes */

/* Copy a number from global to shared memory without waiting; `wait_for_copies` waits for all copies of this thread. */
template <class T> DEVICE void copy_ahead(T *shared, const T *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
}
DEVICE void copy_16_ahead(void *shared, const void *global) { /* 16 bytes, aligned to 16 */
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }

/* A barrier of two warps: those with the number `pair`. */
DEVICE void pair_barrier(int pair) { asm volatile("bar.sync %0, 64;" : : "r"(1 + pair) : "memory"); }
#define NOT_INLINED static __device__ __noinline__

/* Wait until `target` threads have arrived; then what their blocks wrote before is visible. */
DEVICE void arrive_and_wait(unsigned *counter, unsigned target) {
    unsigned arrived;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(counter) : "memory");
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
    while (arrived < target);
}

DEVICE float tanh_near(float x) { /* relative error below 2^-10 */
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
/* Between a store and one of these loads there must be a barrier of the warp or of the block. */
DEVICE void load_matrices(unsigned out[4], const half_float *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(shared_address(row)));
}
DEVICE void load_transposed(unsigned out[4], const half_float *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(shared_address(row)));
}
DEVICE void multiply_add(float sum[4], const unsigned a[4], const unsigned b[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

/* A 16 x 16 part of A, at (row, k). `by_k`: the array is [k][row], else [row][k]. */
template <bool by_k> DEVICE void load_a(unsigned out[4], const half_float *a, int stride, int row, int k) {
    const int lane = threadIdx.x & 31, matrix = lane >> 3, line = lane & 7;
    if (by_k) load_transposed(out, a + (k + (matrix >> 1) * 8 + line) * stride + row + (matrix & 1) * 8);
    else load_matrices(out, a + (row + (matrix & 1) * 8 + line) * stride + k + (matrix >> 1) * 8);
}

/* A 16 x 16 part of B, at (k, column): two fragments of eight columns. `by_k`: the array is [k][column], else [column][k]. */
template <bool by_k> DEVICE void load_b(unsigned out[4], const half_float *b, int stride, int k, int column) {
    const int lane = threadIdx.x & 31, matrix = lane >> 3, line = lane & 7;
    if (by_k) load_transposed(out, b + (k + (matrix & 1) * 8 + line) * stride + column + (matrix >> 1) * 8);
    else load_matrices(out, b + (column + (matrix >> 1) * 8 + line) * stride + k + (matrix & 1) * 8);
}

/* sum[m][n] += A B over DEPTH (a multiple of 16), for 16 M rows and 8 N columns from (row, column) on; A is [k][row], B is
 * [k][column]. A lane holds of sum[m][n] the numbers at rows lane / 4 and lane / 4 + 8, columns 2 (lane % 4) and the next:
 * {0, 1} and {2, 3}. `with_rows`: row_sum[m] += the sums of A's rows over k, as the product with a column of ones. */
template <int M, int N, int DEPTH, class Sums>
DEVICE void multiply_transposed(Sums &sum, const half_float *a, int a_stride, int row, const half_float *b, int b_stride, int column,
                                bool with_rows, float (*row_sum)[4]) {
    const unsigned ones[2] = {0x3F803F80u, 0x3F803F80u};
#pragma unroll 2
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned left[M][4], right[(N + 1) / 2][4];
#pragma unroll
        for (int m = 0; m < M; m++) load_a<true>(left[m], a, a_stride, row + 16 * m, k);
#pragma unroll
        for (int n = 0; n < (N + 1) / 2; n++) load_b<true>(right[n], b, b_stride, k, column + 16 * n);
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int n = 0; n < N; n++) multiply_add(sum[m][n], left[m], right[n / 2] + 2 * (n & 1));
            if (with_rows) multiply_add(row_sum[m], left[m], ones);
        }
    }
}

#endif
