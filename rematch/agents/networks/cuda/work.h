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

/* The next minibatch. */
DEVICE Work next_minibatch(const UpdateArguments *u, Share share, Work work) {
    work.number++;
    work.at += u->minibatch;
    if (work.at >= share.count) work.at = 0, work.epoch++;
    work.size = work.epoch < u->epochs ? minibatch_size(u, share.count, work.at) : 0;
    work.tile = share.worker;
    return work;
}

/* What the worker computes after this tile: the next one of its chain, the first of another chain or of the next minibatch. */
DEVICE Work next_work(const UpdateArguments *u, Share share, Work work) {
    work.tile += share.chains;
    if (work.tile * TILE < work.size) return work;
    work.tile = (work.tile & (share.chains - 1)) + share.workers;
    return work.tile < share.chains && work.tile * TILE < work.size ? work : next_minibatch(u, share, work);
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
