/* The rules of the lattice: the data of a game, its start, one move and the observations (pursuit specification,
 * section 9). Plain C99, no allocation, no globals; also compiles as CUDA C.
 *
 * Everything that depends on one robot only (its moves, its eight images) is in tables that are filled once.
 * The state of a robot is (y * n + x) * 8 + heading; config.py has the same moves in numpy. */
#ifndef REMATCH_LATTICE_RULES_H
#define REMATCH_LATTICE_RULES_H

#include "random.h"

enum { PURSUER = 0, EVADER = 1 };
enum { LEFT = 0, STRAIGHT = 1, RIGHT = 2, ACTIONS = 3, HEADINGS = 8 };
enum { FRAMES = 8, ROTATIONS = 4 }; /* symmetries of the square: rotations, then reflections */
enum { STAGE_NUMBERS = 3, COLUMNS = 5 };
enum { RUNNING = 0, DECIDED = 1 };
enum { STARTED = 0, BAD_STAGE = 1 }; /* results of `reset` */

#define GAME_MARK 0x3154414Cu /* "LAT1"; change it whenever LATTICE_GAME changes */
#define SLACK 1e-5 /* cells; tolerance of lengths, so that 1.41421 reaches the diagonal neighbour */

typedef int32_t rm_flag;         /* a bool of Config */
typedef unsigned short rm_state; /* state of a robot, below 8 * 64 * 64; or a cell */

/* Exactly the fields of `Config` in config.py, which documents each of them. */
#define LATTICE_RULES(FIELD) \
    FIELD(int32_t, n) FIELD(int32_t, block) FIELD(float, radius) FIELD(int32_t, skip) FIELD(int32_t, horizon) \
    FIELD(float, min_distance) FIELD(float, max_distance) FIELD(rm_flag, symmetry)

/* One game. Pairs are [pursuer, evader]. */
#define LATTICE_GAME(FIELD) \
    FIELD(uint64_t, seed, 1)      /* random key of this episode, together with `episode` */ \
    FIELD(int32_t, robot, 2)      /* states of both robots */ \
    FIELD(int32_t, moves_left, 1) \
    FIELD(int32_t, step, 1)       /* moves of this episode so far */ \
    FIELD(uint32_t, episode, 1) \
    FIELD(int32_t, slot, 2)       /* players of both seats; the rules do not read it */ \
    FIELD(float, stage, STAGE_NUMBERS) /* start values of this episode */ \
    FIELD(uint32_t, mark, 1)      /* GAME_MARK: these bytes are a game */

#define RULE_MEMBER(type, name) type name;
#define GAME_MEMBER(type, name, length) type name[length];
typedef struct { LATTICE_RULES(RULE_MEMBER) } Rules;
typedef struct { LATTICE_GAME(GAME_MEMBER) } Game;

/* Tables of one board; S = 8 n * n states, P pairs of free cells. */
typedef struct {
    int32_t reach;     /* largest squared distance that captures */
    rm_state *move;    /* [S, ACTIONS] the state after each action */
    rm_state *image;   /* [S, FRAMES] the state under each symmetry */
    uint8_t *frame;    /* [S, 2] first and last symmetry that makes a pursuer's state smallest */
    int32_t *place;    /* [S] y * (2 n - 1) + x: the difference of two is a relative cell */
    int32_t *square;   /* [(2 n - 1) * (2 n - 1)] squared distance of a relative cell */
    rm_state *pair;    /* [P, 2] cells of (pursuer, evader), the nearest pairs first */
    int32_t *nearer;   /* [2 (n - 1) * (n - 1) + 2] number of pairs with a smaller squared distance */
} Tables;

/* The arrays of a whole batch, game after game. */
typedef struct {
    Game *games;
    const int32_t *action[2];  /* per seat [N], in the frame of the last observation */
    float *obs[2];             /* per seat [N, COLUMNS] */
    float *reward, *outcome;   /* [N, 2] */
    uint8_t *ended, *mirrored; /* [N] */
    int32_t *length;           /* [N] */
    const uint64_t *next_seed; /* [N] of the next episode of each game */
    const int32_t *next_slot;  /* [N, 2] */
    const float *next_stage;   /* [N, STAGE_NUMBERS] */
} Batch;

/* --- the board ------------------------------------------------------------------------------------- */

RM_FN int is_free(const Rules *rules, int x, int y) {
    int edge = (rules->n - rules->block) / 2, end = edge + rules->block;
    return x < edge || x >= end || y < edge || y >= end;
}

/* The relative cell of `other` as seen from `own`: 0 .. (2 n - 1) * (2 n - 1) - 1, from the lower left on. */
RM_FN int relative(const Rules *rules, const Tables *t, int own, int other) {
    return (rules->n - 1) * 2 * rules->n + t->place[other] - t->place[own];
}

/* The number of integers m >= 0 with sqrt(m) < length; with `equal`: sqrt(m) <= length. */
RM_FN int32_t roots_below(float length, int equal) {
    double reach = (double)length + (equal ? SLACK : -SLACK);
    double square = reach * reach;
    int32_t whole;
    if (!(reach >= 0.0)) return 0; /* also for NaN */
    if (square > 1e8) return 100000000;
    whole = (int32_t)square;
    return whole + (equal || (double)whole < square);
}

/* --- tables, filled once per board ------------------------------------------------------------------ */

RM_FN int turn_state(int state, int action) { return (state & ~7) | ((state + STRAIGHT - action) & 7); }

/* Turn, then one king's step in the new heading. Walls clip x and y separately, so a robot slides along them. If
 * the target cell is blocked, the robot does not move; it may cut a corner of the block. */
RM_FN int move_state(const Rules *rules, int state, int action) {
    const int step_x[HEADINGS] = {1, 1, 0, -1, -1, -1, 0, 1}, step_y[HEADINGS] = {0, 1, 1, 1, 0, -1, -1, -1};
    const int n = rules->n, turned = turn_state(state, action), heading = turned & 7, cell = state >> 3;
    int x = cell % n + step_x[heading], y = cell / n + step_y[heading];
    x = x < 0 ? 0 : x >= n ? n - 1 : x;
    y = y < 0 ? 0 : y >= n ? n - 1 : y;
    return is_free(rules, x, y) ? (y * n + x) * 8 + heading : turned;
}

/* A state under a symmetry of the square: mirrored top to bottom (frames 4 to 7), then rotated by frame % 4 quarter
 * turns counter-clockwise. */
RM_FN int image_state(int n, int state, int frame) {
    int heading = state & 7, x = (state >> 3) % n, y = (state >> 3) / n;
    if (frame >= ROTATIONS) {
        heading = -heading;
        y = n - 1 - y;
    }
    for (int quarter = 0; quarter < frame % ROTATIONS; quarter++) {
        int old_x = x;
        heading += 2;
        x = n - 1 - y;
        y = old_x;
    }
    return (y * n + x) * 8 + (heading & 7);
}

/* The canonical frame makes (pursuer, evader) smallest. At most two frames make the pursuer's state smallest: apart
 * from the identity, only the reflection in its heading can leave a robot unchanged. */
RM_FN void fill_state(const Rules *rules, const Tables *t, int state) {
    const int n = rules->n, cell = state >> 3;
    int first = 0, last = 0;
    for (int action = 0; action < ACTIONS; action++)
        t->move[state * ACTIONS + action] = (rm_state)move_state(rules, state, action);
    for (int frame = 0; frame < FRAMES; frame++) {
        int image = image_state(n, state, frame);
        t->image[state * FRAMES + frame] = (rm_state)image;
        if (image < t->image[state * FRAMES + first]) first = frame;
        if (image <= t->image[state * FRAMES + last]) last = frame;
    }
    t->frame[state * 2] = (uint8_t)(rules->symmetry ? first : 0);
    t->frame[state * 2 + 1] = (uint8_t)(rules->symmetry ? last : 0);
    t->place[state] = cell / n * (2 * n - 1) + cell % n;
}

RM_FN void fill_squares(const Rules *rules, const Tables *t) {
    const int most = rules->n - 1;
    int32_t *square = t->square;
    for (int y = -most; y <= most; y++)
        for (int x = -most; x <= most; x++) *square++ = x * x + y * y;
}

/* All ordered pairs of free cells by distance: a counting sort. */
RM_FN void fill_pairs(const Rules *rules, const Tables *t) {
    const int n = rules->n, cells = n * n, furthest = 2 * (n - 1) * (n - 1);
    for (int pass = 0; pass < 2; pass++) { /* count, then place */
        for (int a = 0; a < cells; a++)
            for (int b = 0; b < cells; b++) {
                if (!is_free(rules, a % n, a / n) || !is_free(rules, b % n, b / n)) continue;
                int square = t->square[relative(rules, t, a * HEADINGS, b * HEADINGS)];
                if (pass == 0) {
                    t->nearer[square + 1]++;
                } else {
                    int32_t index = t->nearer[square]++;
                    t->pair[2 * (long)index] = (rm_state)a;
                    t->pair[2 * (long)index + 1] = (rm_state)b;
                }
            }
        if (pass == 0)
            for (int square = 1; square <= furthest + 1; square++) t->nearer[square] += t->nearer[square - 1];
    }
    for (int square = furthest + 1; square > 0; square--) t->nearer[square] = t->nearer[square - 1];
    t->nearer[0] = 0;
}

/* --- the start of an episode ------------------------------------------------------------------------- */

/* floor(two words / 2^64 * count), for counts below 2^32: uniform to one part in 2^32 and better. */
RM_FN uint32_t below(uint32_t count, uint32_t high, uint32_t low) {
    return (uint32_t)(((uint64_t)high * count + ((uint64_t)low * count >> 32)) >> 32);
}

/* The slice [from, to) of t->pair from which a stage (anywhere, smallest, largest distance) samples; 0 if empty. */
RM_FN int start_range(const Rules *rules, const Tables *t, const float *stage, int32_t *from, int32_t *to) {
    const int32_t most = 2 * (rules->n - 1) * (rules->n - 1) + 1;
    int32_t low = t->reach + 1, high = most;
    if (stage[0] == 0.0f) {
        low = roots_below(stage[1], 0);
        high = roots_below(stage[2], 1);
    }
    *from = t->nearer[low < most ? low : most];
    *to = t->nearer[high < most ? high : most];
    return *from < *to && (stage[0] == 0.0f || stage[0] == 1.0f);
}

/* Start the episode given by seed, episode, slot and stage of the game: a pair of cells, both headings and, for a
 * start anywhere, the moves left are uniform. A start within the capture radius is not a capture. */
RM_FN int reset(const Rules *rules, const Tables *t, Game *game) {
    int32_t from, to;
    if (!start_range(rules, t, game->stage, &from, &to)) return BAD_STAGE;
    rm_quad random = rm_philox(game->seed[0], game->episode[0], 0, RM_STREAM_RESET, 0);
    const uint32_t pair_index = below((uint32_t)(to - from), random.w[0], random.w[1]);
    const rm_state *cells = t->pair + 2 * ((long)from + pair_index);
    game->mark[0] = GAME_MARK;
    game->step[0] = 0;
    game->robot[PURSUER] = cells[PURSUER] * HEADINGS + (int32_t)(random.w[2] & 7);
    game->robot[EVADER] = cells[EVADER] * HEADINGS + (int32_t)(random.w[2] >> 3 & 7);
    game->moves_left[0] = rules->horizon;
    if (game->stage[0] != 0.0f)
        game->moves_left[0] = 1 + (int32_t)below((uint32_t)rules->horizon, random.w[3], 0);
    return STARTED;
}

/* Start the next episode of the game in this row. */
RM_FN int restart(const Rules *rules, const Tables *t, Batch *batch, int row, uint32_t episode) {
    Game *game = batch->games + row;
    game->seed[0] = batch->next_seed[row];
    game->episode[0] = episode;
    for (int s = 0; s < 2; s++) game->slot[s] = batch->next_slot[2 * row + s];
    for (int k = 0; k < STAGE_NUMBERS; k++) game->stage[k] = batch->next_stage[STAGE_NUMBERS * row + k];
    return reset(rules, t, game);
}

/* --- observations ----------------------------------------------------------------------------------- */

/* Write the observations of a position in its canonical frame; returns whether that frame is a reflection. */
RM_FN int observe_position(const Rules *rules, const Tables *t, const int32_t robot[2], int32_t moves_left,
                           float *obs[2]) {
    const rm_state *evader = t->image + (long)robot[EVADER] * FRAMES;
    const uint8_t *frames = t->frame + robot[PURSUER] * 2;
    const int frame = evader[frames[1]] < evader[frames[0]] ? frames[1] : frames[0];
    const int32_t shown[2] = {t->image[(long)robot[PURSUER] * FRAMES + frame], evader[frame]};
    for (int s = 0; s < 2; s++) {
        const int32_t own = shown[s], other = shown[1 - s];
        const int32_t relative_cell = relative(rules, t, own, other) * HEADINGS;
        obs[s][0] = (float)own;
        obs[s][1] = (float)other;
        obs[s][2] = (float)(relative_cell + (own & 7));
        obs[s][3] = (float)(relative_cell + (other & 7));
        obs[s][4] = (float)(moves_left - 1);
    }
    return frame >= ROTATIONS;
}

RM_FN void observe(const Rules *rules, const Tables *t, Batch *batch, int row) {
    const Game *game = batch->games + row;
    float *obs[2] = {batch->obs[0] + (long)row * COLUMNS, batch->obs[1] + (long)row * COLUMNS};
    batch->mirrored[row] = (uint8_t)observe_position(rules, t, game->robot, game->moves_left[0], obs);
}

/* --- a move ------------------------------------------------------------------------------------------ */

/* One move of the game in this row: both turn and step, capture, horizon, rewards; an ended game restarts; then
 * observations are written. Actions, 0 to 2, refer to the frame of the last observation. Returns STARTED or
 * BAD_STAGE. */
RM_FN int step(const Rules *rules, const Tables *t, Batch *batch, int row) {
    Game *game = batch->games + row;
    const int mirrored = batch->mirrored[row];
    int action[2], status = STARTED;
    for (int s = 0; s < 2; s++) action[s] = mirrored ? RIGHT - batch->action[s][row] : batch->action[s][row];
    /* Section 9: "the pursuer loses its move, though not its turn, whenever (moves remaining - 1) mod k = 0" */
    const int skips = rules->skip && (game->moves_left[0] - 1) % rules->skip == 0;
    const int pursuer = skips ? turn_state(game->robot[PURSUER], action[PURSUER])
                              : t->move[game->robot[PURSUER] * ACTIONS + action[PURSUER]];
    const int evader = t->move[game->robot[EVADER] * ACTIONS + action[EVADER]];
    game->robot[PURSUER] = pursuer;
    game->robot[EVADER] = evader;
    game->moves_left[0] -= 1;
    game->step[0] += 1;

    const int captured = t->square[relative(rules, t, pursuer, evader)] <= t->reach;
    const int ended = captured || game->moves_left[0] <= 0;
    const float pursuer_reward = captured ? 1.0f : ended ? -1.0f : 0.0f;
    batch->reward[2 * row + PURSUER] = pursuer_reward;
    batch->reward[2 * row + EVADER] = -pursuer_reward;
    batch->outcome[2 * row + PURSUER] = (float)captured;
    batch->outcome[2 * row + EVADER] = (float)(ended && !captured);
    batch->ended[row] = (uint8_t)(ended ? DECIDED : RUNNING);
    batch->length[row] = game->step[0];
    if (ended) status = restart(rules, t, batch, row, game->episode[0] + 1);
    observe(rules, t, batch, row);
    return status;
}

#endif
