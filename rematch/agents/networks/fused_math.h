/* Arithmetic of fused.h: products of matrices, exponential, activations. */
#ifndef REMATCH_FUSED_MATH_H
#define REMATCH_FUSED_MATH_H

#include <stdint.h>
#include <string.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t word_vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Keep a vector in a register: gcc would load it from memory again for each of its uses. A product that is kept is
 * rounded before something is added to it. */
#if defined(__AVX512F__)
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#elif defined(__AVX__)
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define IN_REGISTER(v) __asm__("" : "+w"(v))
#else
#define IN_REGISTER(v) (void)(v)
#endif

/* to[c][r] = from[r][c], in squares that stay in the L1 cache: a column of a wide matrix touches one cache line per number. */
static void transpose(long rows, long columns, const float *from, long from_row, float *to, long to_row) {
    enum { SIDE = 16 };
    for (long r = 0; r < rows; r += SIDE)
        for (long c = 0; c < columns; c += SIDE) {
            long r_end = r + SIDE < rows ? r + SIDE : rows, c_end = c + SIDE < columns ? c + SIDE : columns, done = r;
#if defined(__SSE__)
            for (; c_end - c == SIDE && done + 4 <= r_end; done += 4)
                for (long j = c; j < c_end; j += 4) {
                    const float *f = from + done * from_row + j;
                    __m128 a0 = _mm_loadu_ps(f), a1 = _mm_loadu_ps(f + from_row);
                    __m128 a2 = _mm_loadu_ps(f + 2 * from_row), a3 = _mm_loadu_ps(f + 3 * from_row);
                    _MM_TRANSPOSE4_PS(a0, a1, a2, a3);
                    float *t = to + j * to_row + done;
                    _mm_storeu_ps(t, a0);
                    _mm_storeu_ps(t + to_row, a1);
                    _mm_storeu_ps(t + 2 * to_row, a2);
                    _mm_storeu_ps(t + 3 * to_row, a3);
                }
#endif
            for (long i = done; i < r_end; i++)
                for (long j = c; j < c_end; j++) to[j * to_row + i] = from[i * from_row + j];
        }
}

/* Where sums go: START writes them, CONTINUE lets them begin with the numbers that are there, ADD adds whole sums to those. */
enum { START, CONTINUE, ADD };

/* A tile of C[m][n] = start[m * lds + n] + sum_k A[m * am + k * ak] * B[k * ldb + n], without a start from 0 on; the
 * sums stay in registers over all k. With `add` they are added to C. */
static inline __attribute__((always_inline)) void tile(const int mr, const int nr, long depth, const float *A, long am, long ak,
                                                       const float *B, long ldb, const float *start, long lds, float *C, long ldc, int add) {
    vec sum[8][4];
#pragma GCC unroll 8
    for (int m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (int n = 0; n < nr; n++) sum[m][n] = start ? *(const vec *)(start + m * lds + n * LANES) : (vec){0};
    for (long k = 0; k < depth; k++) {
        vec b[4];
#pragma GCC unroll 4
        for (int n = 0; n < nr; n++) {
            b[n] = *(const vec *)(B + k * ldb + n * LANES);
            if (mr > 1) IN_REGISTER(b[n]);
        }
#pragma GCC unroll 8
        for (int m = 0; m < mr; m++) {
            float a = A[m * am + k * ak];
#pragma GCC unroll 4
            for (int n = 0; n < nr; n++) sum[m][n] += a * b[n];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (int n = 0; n < nr; n++) {
            vec *c = (vec *)(C + m * ldc + n * LANES);
            if (add) sum[m][n] = *c + sum[m][n];
            *c = sum[m][n];
        }
}

/* rows is a multiple of 4, columns of LANES (all shapes are padded). Every sum runs over k in order, so the shape
 * of the tiles changes no bit. */
static void matmul(long rows, long columns, long depth, const float *A, long am, long ak, const float *B, long ldb,
                   const float *start, long lds, float *C, long ldc, int add) {
#define TILE_OF(mr, nr, b, row) tile(mr, nr, depth, A + m * am, am, ak, b, row, start ? start + m * lds + n : NULL, lds, C + m * ldc + n, ldc, add)
#define TILE(mr, nr) TILE_OF(mr, nr, B + n, ldb)
    enum { WIDE = 4 * LANES, SHORT = 64 };
    long n = 0;
    if (LANES == 16)
        for (; n + WIDE <= columns; n += WIDE) {
            float close[SHORT * WIDE] __attribute__((aligned(64)));
            int far = ldb > WIDE && depth <= SHORT; /* rows of a wide B are so far apart that they share few sets of the L1 cache */
            for (long k = 0; far && k < depth; k++) memcpy(close + k * WIDE, B + k * ldb + n, sizeof(float) * WIDE);
            for (long m = 0; m < rows; m += 4) TILE_OF(4, 4, far ? close : B + n, far ? WIDE : ldb);
        }
    for (; n + 2 * LANES <= columns; n += 2 * LANES) {
        long m = 0;
        if (LANES == 8) /* twelve sums, two of B and one of A fill the sixteen registers of AVX2 */
            for (; m + 6 <= rows; m += 6) TILE(6, 2);
        for (; m + 4 <= rows; m += 4) TILE(4, 2);
        for (; m < rows; m += 2) TILE(2, 2);
    }
    for (; n < columns; n += LANES) {
        long m = 0;
        for (; m + 8 <= rows; m += 8) TILE(8, 1);
        for (; m < rows; m += 4) TILE(4, 1);
    }
#undef TILE
#undef TILE_OF
}

/* Whether `matmul_few` computes a product with these columns (without padding) and sums of this length. */
static inline int is_few(long columns, long depth) { return LANES == 16 && columns <= 4 && depth % 4 == 0; }

/* As `matmul` for up to four columns, of which B and C have sixteen, and rows of A side by side: a register has the sums
 * of four rows, so that twelve of its sixteen lanes or more have work. C is written in its first four columns. */
static void matmul_few(long rows, long depth, const float *A, long am, const float *B, const float *start, float *C) {
#if defined(__AVX512F__)
    enum { GROUPS = 4 };
    for (long m = 0; m < rows; m += 4 * GROUPS) {
        __m512 sum[GROUPS];
        int groups = rows - m < 4 * GROUPS ? (int)((rows - m) / 4) : GROUPS;
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++) sum[g] = _mm512_broadcast_f32x4(_mm_loadu_ps(start));
        for (long k = 0; k < depth; k += 4) {
            const __m512 b0 = _mm512_broadcast_f32x4(_mm_loadu_ps(B + k * 16)), b1 = _mm512_broadcast_f32x4(_mm_loadu_ps(B + k * 16 + 16));
            const __m512 b2 = _mm512_broadcast_f32x4(_mm_loadu_ps(B + k * 16 + 32)), b3 = _mm512_broadcast_f32x4(_mm_loadu_ps(B + k * 16 + 48));
#pragma GCC unroll 4
            for (int g = 0; g < GROUPS; g++) {
                const float *a = A + (m + (g < groups ? 4 * g : 0)) * am + k;
                __m512 four = _mm512_castps128_ps512(_mm_loadu_ps(a)); /* four numbers of each of four rows */
                four = _mm512_insertf32x4(four, _mm_loadu_ps(a + am), 1);
                four = _mm512_insertf32x4(four, _mm_loadu_ps(a + 2 * am), 2);
                four = _mm512_insertf32x4(four, _mm_loadu_ps(a + 3 * am), 3);
                sum[g] = _mm512_fmadd_ps(_mm512_permute_ps(four, 0x00), b0, sum[g]);
                sum[g] = _mm512_fmadd_ps(_mm512_permute_ps(four, 0x55), b1, sum[g]);
                sum[g] = _mm512_fmadd_ps(_mm512_permute_ps(four, 0xAA), b2, sum[g]);
                sum[g] = _mm512_fmadd_ps(_mm512_permute_ps(four, 0xFF), b3, sum[g]);
            }
        }
        for (int g = 0; g < groups; g++) {
            float *c = C + (m + 4 * g) * 16;
            _mm_storeu_ps(c, _mm512_castps512_ps128(sum[g]));
            _mm_storeu_ps(c + 16, _mm512_extractf32x4_ps(sum[g], 1));
            _mm_storeu_ps(c + 32, _mm512_extractf32x4_ps(sum[g], 2));
            _mm_storeu_ps(c + 48, _mm512_extractf32x4_ps(sum[g], 3));
        }
    }
#else
    (void)rows, (void)depth, (void)A, (void)am, (void)B, (void)start, (void)C;
#endif
}

/* x within [-bound, bound]; NaN stays NaN */
static inline vec clip(vec x, float bound) {
#if defined(__AVX512F__)
    return (vec)_mm512_min_ps(_mm512_set1_ps(bound), _mm512_max_ps(_mm512_set1_ps(-bound), (__m512)x));
#elif defined(__AVX__)
    return (vec)_mm256_min_ps(_mm256_set1_ps(bound), _mm256_max_ps(_mm256_set1_ps(-bound), (__m256)x));
#else
    for (int i = 0; i < LANES; i++) {
        float c = x[i] < -bound ? -bound : x[i];
        x[i] = c > bound ? bound : c;
    }
    return x;
#endif
}

/* e^x to about 1e-7 relative for |x| <= 87: x = n ln 2 + r, Taylor to r^6 on |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds
 * to the nearest whole number and leaves it in the low bits; a shift moves it into the exponent of 2^n. There is no
 * conversion to int, which would be undefined for NaN. */
static inline vec exp_near(vec x) {
    vec shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;     /* ln 2 in two parts */
    vec p = 1.0f + r * (1.0f + r * (0.5f + r * (0.16666667f + r * (0.041666668f + r * (0.0083333338f + r * 0.0013888889f)))));
    word_vec scale = ((word_vec)shifted + 127u) << 23; /* the shift drops all bits of 1.5 * 2^23 itself */
    return p * (vec)scale;
}

/* tanh x = 1 - 2 / (e^2x + 1), which is 1 in float from |x| = 10 on. count: a multiple of LANES */
static void activate(int relu, int count, float *x) {
    if (relu)
        for (int i = 0; i < count; i++) x[i] = x[i] > 0 ? x[i] : 0;
    else
        for (int i = 0; i < count; i += LANES) {
            vec c = clip(*(const vec *)(x + i), 10.0f);
            *(vec *)(x + i) = 1.0f - 2.0f / (exp_near(c + c) + 1.0f);
        }
}

/* d <- d * activation'(h), where h is the activation's output */
static void activate_back(int relu, int count, const float *h, float *d) {
    if (relu)
        for (int i = 0; i < count; i++) d[i] = h[i] > 0 ? d[i] : 0;
    else
        for (int i = 0; i < count; i++) d[i] *= 1.0f - h[i] * h[i];
}

/* to = from, n floats; faster than memcpy, which is a call where n is not constant */
static inline void copy_floats(float *restrict to, const float *restrict from, long n) {
    if (n < LANES) {
        for (long i = 0; i < n; i++) to[i] = from[i];
        return;
    }
    for (long i = 0; i + LANES < n; i += LANES) *(vec *)(to + i) = *(const vec *)(from + i);
    *(vec *)(to + n - LANES) = *(const vec *)(from + n - LANES); /* may overlap the one before */
}

#endif
