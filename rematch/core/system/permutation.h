/* A shuffle with the results of numpy.random.Generator(Philox(key)).shuffle: Philox 4x64-10 (Salmon et al. 2011), numbers
 * below a bound by rejection, Fisher and Yates. Numpy draws each number where it is needed and waits for it; here the
 * words are drawn in blocks and rejected without a branch. */
#ifndef REMATCH_PERMUTATION_H
#define REMATCH_PERMUTATION_H

#include <stdint.h>

enum { WORDS = 512, TARGETS = 1024 };

/* The high half of a product of 64-bit numbers; *low is the other one. */
static inline uint64_t wide_product(uint64_t a, uint64_t b, uint64_t *low) {
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    *low = a * b;
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

/* The eight 32-bit words of one counter, in numpy's order. */
static inline void philox_words(uint64_t key, uint64_t counter, uint32_t *words) {
    uint64_t c0 = counter, c1 = 0, c2 = 0, c3 = 0, k0 = key, k1 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t low0, low1, high0 = wide_product(0xD2E7470EE14C6C93u, c0, &low0);
        uint64_t high1 = wide_product(0xCA5A826395121157u, c2, &low1);
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B97F4A7C15u;
        k1 += 0xBB67AE8584CAA73Bu;
    }
    uint64_t numbers[4] = {c0, c1, c2, c3};
    for (int n = 0; n < 4; n++) {
        words[2 * n] = (uint32_t)numbers[n];
        words[2 * n + 1] = (uint32_t)(numbers[n] >> 32);
    }
}

/* Shuffle `count` numbers, fewer than 2^32, in place. */
static void shuffle(uint64_t key, int64_t *values, int64_t count) {
    uint32_t words[WORDS], target[TARGETS];
    uint64_t counter = 0;
    int used = WORDS;
    for (int64_t i = count - 1; i > 0;) {
        int64_t first = i, last = i - TARGETS > 0 ? i - TARGETS : 0; /* positions first .. last + 1 get their targets */
        while (i > last) {
            uint32_t mask = 0xFFFFFFFFu >> __builtin_clz((uint32_t)i);
            int64_t end = (int64_t)(mask >> 1) > last ? (int64_t)(mask >> 1) : last; /* down to here the mask is the same */
            while (i > end) {
                if (used == WORDS) {
                    for (int w = 0; w < WORDS; w += 8) philox_words(key, ++counter, words + w);
                    used = 0;
                }
                for (; used < WORDS && i > end; used++) {
                    uint32_t word = words[used] & mask;
                    target[first - i] = word;
                    i -= word <= (uint32_t)i;
                }
            }
        }
        for (int64_t n = first; n > last; n--) {
            int64_t value = values[n], other = target[first - n];
            values[n] = values[other];
            values[other] = value;
        }
    }
}

#endif
