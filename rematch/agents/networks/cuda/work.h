/* The minibatches of an iteration, and which of their tiles a worker computes. */
#ifndef REMATCH_WORK_H
#define REMATCH_WORK_H

#include "ppo_loss.h"

/* A tile of a minibatch. A worker adds up whole chains of tiles, chain, chain + chains, chain + 2 chains ...; `chains` is a
 * power of two. `number` counts minibatches; `size` is 0 after the last one. */
typedef struct { int number, epoch, at, size, tile; } Work;

/* The worker's number, of how many; chains of each minibatch; rows that are learned from. */
typedef struct { int worker, workers, chains, count; } Share;

DEVICE int tiles_of(int rows) { return (rows + TILE - 1) / TILE; }

DEVICE int minibatch_size(const UpdateArguments *u, int count, int at) { return count - at < u->minibatch ? count - at : u->minibatch; }

DEVICE Work first_work(const UpdateArguments *u, Share share) {
    return {0, 0, 0, share.count > 0 && u->epochs > 0 ? minibatch_size(u, share.count, 0) : 0, share.worker};
}

/* The next minibatch; the epochs are over where its size is 0. */
DEVICE Work next_minibatch(const UpdateArguments *u, Share share, Work work) {
    const int after = work.at + u->minibatch, at = after < share.count ? after : 0, epoch = work.epoch + (after < share.count ? 0 : 1);
    return {work.number + 1, epoch, at, epoch < u->epochs ? minibatch_size(u, share.count, at) : 0, share.worker};
}

/* The worker's next tile: the next one of its chain, the first of another chain or of the next minibatch. Without branches. */
DEVICE Work next_work(const UpdateArguments *u, Share share, Work work) {
    const int next = work.tile + share.chains, first = (work.tile & (share.chains - 1)) + share.workers;
    const bool in_chain = next * TILE < work.size, in_minibatch = first < share.chains && first * TILE < work.size;
    const Work minibatch = next_minibatch(u, share, work);
    const bool stays = in_chain || in_minibatch;
    return {stays ? work.number : minibatch.number, stays ? work.epoch : minibatch.epoch, stays ? work.at : minibatch.at,
            stays ? work.size : minibatch.size, in_chain ? next : in_minibatch ? first : minibatch.tile};
}

DEVICE bool has_rows(Work work) { return work.tile * TILE < work.size; }

DEVICE bool chain_ends(Share share, Work work, Work next) {
    return next.number != work.number || ((next.tile ^ work.tile) & (share.chains - 1));
}

/* Start the copy of the row of the arrays that place `i` of a tile has; -1: none. */
DEVICE void copy_order(const UpdateArguments *u, int *rows, Work work, int i) {
    const int place = work.tile * TILE + i;
    if (place < work.size) copy_ahead(rows + i, u->order + (long long)work.epoch * u->capacity + work.at + place);
    else rows[i] = -1;
}

#endif
