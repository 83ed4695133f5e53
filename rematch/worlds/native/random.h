/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC11, section 4). A random number is a function of (key, counter): there is no
 * state to save, and the number of threads has no effect. Plain C99 that also compiles as CUDA C. */
#ifndef REMATCH_RANDOM_H
#define REMATCH_RANDOM_H

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* RM_FN: functions of worlds, always inlined. RM_LARGE_FN: larger ones; the compiler decides. */
#ifdef __CUDACC__
#define RM_FN static __device__ __forceinline__
#define RM_LARGE_FN static __device__
#else
#define RM_FN static inline __attribute__((always_inline, unused))
#define RM_LARGE_FN static __attribute__((unused))
#endif

/* Before a loop over a small array: on a GPU its numbers stay in registers only where all indices are constants. */
#ifdef __CUDACC__
#define RM_UNROLL _Pragma("unroll")
#else
#define RM_UNROLL
#endif

typedef struct { uint32_t w[4]; } rm_quad;

/* Streams separate the random numbers of different purposes (counter word 2); the same numbers in core/rng.py. */
enum { RM_STREAM_RESET = 1, RM_STREAM_BOT = 2, RM_STREAM_ACT = 3, RM_STREAM_SENSOR = 4, RM_STREAM_DYNAMICS = 5,
       RM_STREAM_ACTUATOR = 6, RM_STREAM_OBSERVATION = 7 };

RM_FN rm_quad rm_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    rm_quad out = {{c0, c1, c2, c3}};
    return out;
}

/* 24 random bits as a float in [0, 1): exact, the same on every processor. */
RM_FN float rm_unit(uint32_t word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

#endif
