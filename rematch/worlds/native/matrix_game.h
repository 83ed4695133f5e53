/* Zero-sum matrix games: value and optimal mixed strategies of both sides. Plain C99.
 *
 * Three methods, each tried if the one before it fails: a saddle point (the common case, no arithmetic); for games up
 * to 3 x 3 the square kernels of Shapley and Snow ("Basic solutions of discrete games", 1950), checked by the values
 * that their strategies guarantee; and a simplex. Ties and near-ties are common (a value table is full of equal and
 * almost equal numbers), and in double precision a pivot on the difference of two almost equal payoffs can ruin the
 * result, so the simplex uses pairs of doubles: about 32 digits. If that fails too, because differences of
 * differences decide, payoffs are perturbed by 1e-12 of their range. */
#ifndef REMATCH_MATRIX_GAME_H
#define REMATCH_MATRIX_GAME_H

#include <math.h>
#include <stdint.h>

#define MATRIX_MOST 16                 /* rows or columns of a game */
#define MATRIX_KERNEL_TOLERANCE 1e-13  /* of the largest payoff; optimal strategies: their guarantees differ by less */
#define MATRIX_SIMPLEX_TOLERANCE 1e-11 /* the same for the simplex, which else tries again */
#define MATRIX_ZERO 1e-22              /* zero in the simplex, in which payoffs are scaled to [1, 2] */

/* --- pairs of doubles (Dekker 1971; Hida, Li, Bailey, "Quad-double arithmetic", 2000) ------------------------- */

typedef struct { double hi, lo; } Pair; /* hi + lo; |lo| is at most half a unit in the last place of hi */

static inline Pair pair_exact_sum(double a, double b) {
    double sum = a + b, part = sum - a;
    Pair out = {sum, (a - (sum - part)) + (b - part)};
    return out;
}

static inline Pair pair_add(Pair a, Pair b) {
    Pair sum = pair_exact_sum(a.hi, b.hi), low = pair_exact_sum(a.lo, b.lo);
    sum = pair_exact_sum(sum.hi, sum.lo + low.hi);
    return pair_exact_sum(sum.hi, sum.lo + low.lo);
}

static inline Pair pair_multiply(Pair a, Pair b) {
    double product = a.hi * b.hi, remainder = fma(a.hi, b.hi, -product);
    return pair_exact_sum(product, remainder + (a.hi * b.lo + a.lo * b.hi));
}

static inline Pair pair_negate(Pair a) {
    Pair out = {-a.hi, -a.lo};
    return out;
}

static inline Pair pair_of(double a) {
    Pair out = {a, 0};
    return out;
}

static inline Pair pair_divide(Pair a, Pair b) {
    Pair quotient = pair_of(a.hi / b.hi);
    for (int round = 0; round < 2; round++) { /* each round adds the digits of the remainder */
        Pair remainder = pair_add(a, pair_negate(pair_multiply(quotient, b)));
        quotient = pair_add(quotient, pair_of(remainder.hi / b.hi));
    }
    return quotient;
}

static inline int pair_less(Pair a, Pair b) { return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo); }

/* --- the simplex ----------------------------------------------------------------------------------------------
 *
 * Dantzig ("Linear Programming and Extensions", 1963, 13-2): with all payoffs positive, maximise sum(y) subject to
 * A y <= 1, y >= 0. The value is 1 / sum(y), the columns' mixture is y * value, the rows' is the dual solution *
 * value. y = 0 is feasible, so one phase is enough; payoffs of at least one keep it bounded. */

typedef struct {
    int rows, cols;
    Pair cell[MATRIX_MOST + 1][MATRIX_MOST + 1];  /* last row: reduced costs; last column: right-hand sides */
    int basic[MATRIX_MOST], outside[MATRIX_MOST]; /* variables: 0 .. cols - 1 are y, then the slacks */
} MatrixTableau;

/* The steepest column and the largest pivot among tied rows are fast and accurate; the smallest indices (`bland`)
 * guarantee termination despite ties (Bland, Mathematics of Operations Research 2, 1977). */
static int matrix_entering(const MatrixTableau *t, int bland) {
    int best = -1;
    for (int c = 0; c < t->cols; c++) {
        if (t->cell[t->rows][c].hi >= -MATRIX_ZERO) continue;
        if (best < 0 || (bland ? t->outside[c] < t->outside[best]
                               : pair_less(t->cell[t->rows][c], t->cell[t->rows][best])))
            best = c;
    }
    return best;
}

static int matrix_leaving(const MatrixTableau *t, int enter, int bland) {
    int best = -1;
    Pair least = {0, 0};
    for (int r = 0; r < t->rows; r++) {
        Pair pivot = t->cell[r][enter];
        if (pivot.hi <= MATRIX_ZERO) continue;
        Pair ratio = pair_divide(t->cell[r][t->cols], pivot);
        if (best >= 0) {
            double beyond = pair_add(ratio, pair_negate(least)).hi;
            int tied = fabs(beyond) <= MATRIX_ZERO;
            if (tied ? (bland ? t->basic[r] >= t->basic[best] : !pair_less(t->cell[best][enter], pivot)) : beyond > 0)
                continue;
        }
        best = r;
        least = ratio;
    }
    return best;
}

static void matrix_pivot(MatrixTableau *t, int leave, int enter) {
    const Pair inverse = pair_divide(pair_of(1), t->cell[leave][enter]);
    for (int r = 0; r <= t->rows; r++) {
        if (r == leave) continue;
        const Pair factor = pair_negate(pair_multiply(t->cell[r][enter], inverse));
        if (factor.hi != 0)
            for (int c = 0; c <= t->cols; c++)
                if (c != enter) t->cell[r][c] = pair_add(t->cell[r][c], pair_multiply(factor, t->cell[leave][c]));
        t->cell[r][enter] = factor;
    }
    for (int c = 0; c <= t->cols; c++) t->cell[leave][c] = pair_multiply(t->cell[leave][c], inverse);
    t->cell[leave][enter] = inverse;
    for (int r = 0; r < t->rows; r++) /* rounding must not make a zero right-hand side negative */
        if (t->cell[r][t->cols].hi < 0) t->cell[r][t->cols] = pair_of(0);
    const int swap = t->basic[leave];
    t->basic[leave] = t->outside[enter];
    t->outside[enter] = swap;
}

/* Normalise weights to probabilities; rounding may have left tiny negative weights. */
static inline void matrix_normalise(int count, double *mix) {
    double sum = 0;
    for (int n = 0; n < count; n++) {
        if (!(mix[n] > 0)) mix[n] = 0;
        sum += mix[n];
    }
    for (int n = 0; n < count; n++) mix[n] /= sum;
}

/* `perturbation`: largest change of a payoff, as a fraction of their range; the sequence is fixed, so that the result
 * is a function of the game. */
static void matrix_simplex(
        const int size[2], const double *payoff, double perturbation, double *row_mix, double *col_mix) {
    MatrixTableau t;
    const int rows = size[0], cols = size[1];
    uint32_t word = 1;
    double least = payoff[0], most = payoff[0];
    for (int n = 1; n < rows * cols; n++) {
        if (payoff[n] < least) least = payoff[n];
        if (payoff[n] > most) most = payoff[n];
    }
    const Pair scale = pair_of(1 / (most - least));
    t.rows = rows;
    t.cols = cols;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            Pair above = pair_exact_sum(payoff[r * cols + c], -least);
            t.cell[r][c] = pair_add(pair_multiply(above, scale), pair_of(1));
            word = word * 1664525u + 1013904223u; /* Knuth, volume 2, 3.3.4, table 1, line 16 */
            t.cell[r][c] = pair_add(t.cell[r][c], pair_of(perturbation * (word * 0x1p-31 - 1)));
        }
        t.cell[r][cols] = pair_of(1);
        t.basic[r] = cols + r;
    }
    for (int c = 0; c < cols; c++) {
        t.cell[rows][c] = pair_of(-1);
        t.outside[c] = c;
    }
    t.cell[rows][cols] = pair_of(0);
    for (int pivots = 0; pivots < 4096; pivots++) { /* many more than a 16 x 16 game needs */
        const int bland = pivots > 2 * (rows + cols);
        const int enter = matrix_entering(&t, bland);
        const int leave = enter < 0 ? -1 : matrix_leaving(&t, enter, bland);
        if (leave < 0) break;
        matrix_pivot(&t, leave, enter);
    }
    for (int r = 0; r < rows; r++) row_mix[r] = 0;
    for (int c = 0; c < cols; c++) col_mix[c] = 0;
    for (int r = 0; r < rows; r++)
        if (t.basic[r] < cols) col_mix[t.basic[r]] = t.cell[r][cols].hi;
    for (int c = 0; c < cols; c++)
        if (t.outside[c] >= cols) row_mix[t.outside[c] - cols] = t.cell[rows][c].hi;
    matrix_normalise(rows, row_mix);
    matrix_normalise(cols, col_mix);
}

/* --- the faster methods ----------------------------------------------------------------------------------------- */

/* Whether an entry is the smallest of its row and the largest of its column; `index` is row * cols + column. */
static inline __attribute__((always_inline)) int matrix_saddle(
        int rows, int cols, const double *payoff, int *index) {
    int row = 0, col = 0;
    double maximin = 0, minimax = 0;
    for (int r = 0; r < rows; r++) {
        double least = payoff[r * cols];
        for (int c = 1; c < cols; c++) least = payoff[r * cols + c] < least ? payoff[r * cols + c] : least;
        if (r == 0 || least > maximin) maximin = least, row = r;
    }
    for (int c = 0; c < cols; c++) {
        double most = payoff[c];
        for (int r = 1; r < rows; r++) most = payoff[r * cols + c] > most ? payoff[r * cols + c] : most;
        if (c == 0 || most < minimax) minimax = most, col = c;
    }
    *index = row * cols + col;
    return maximin >= minimax;
}

/* The values that two strategies guarantee: the row side at least guarantee[0], the column side at most [1]. */
static inline __attribute__((always_inline)) void matrix_guarantees(
        const int size[2], const double *payoff, const double *row_mix, const double *col_mix, double guarantee[2]) {
    guarantee[0] = HUGE_VAL;
    guarantee[1] = -HUGE_VAL;
    for (int c = 0; c < size[1]; c++) {
        double sum = 0;
        for (int r = 0; r < size[0]; r++) sum += row_mix[r] * payoff[r * size[1] + c];
        if (sum < guarantee[0]) guarantee[0] = sum;
    }
    for (int r = 0; r < size[0]; r++) {
        double sum = 0;
        for (int c = 0; c < size[1]; c++) sum += col_mix[c] * payoff[r * size[1] + c];
        if (sum > guarantee[1]) guarantee[1] = sum;
    }
}

/* Both mix over all three: probabilities are proportional to sums of cofactors, if these have the same sign. */
static inline int matrix_all_three(const double *a, double *row_mix, double *col_mix) {
    for (int n = 0; n < 3; n++) row_mix[n] = col_mix[n] = 0;
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            const int r1 = (r + 1) % 3, r2 = (r + 2) % 3, c1 = (c + 1) % 3, c2 = (c + 2) % 3;
            double cofactor = a[r1 * 3 + c1] * a[r2 * 3 + c2] - a[r1 * 3 + c2] * a[r2 * 3 + c1];
            row_mix[r] += cofactor;
            col_mix[c] += cofactor;
        }
    const double rows = row_mix[0] + row_mix[1] + row_mix[2], cols = col_mix[0] + col_mix[1] + col_mix[2];
    if (rows == 0 || cols == 0) return 0; /* equal except for rounding, so each side is divided by its own sum */
    const double per_row = 1 / rows, per_col = 1 / cols;
    for (int n = 0; n < 3; n++) {
        row_mix[n] *= per_row;
        col_mix[n] *= per_col;
        if (!(row_mix[n] >= 0 && col_mix[n] >= 0)) return 0;
    }
    return 1;
}

/* Both mix over two: rows r, s and columns c, d, such that the other side is indifferent between its two. */
static inline int matrix_two(const int size[2], const double *a, const int at[4], double *row_mix, double *col_mix) {
    const double *first = a + at[0] * size[1], *second = a + at[1] * size[1];
    const double rc = first[at[2]], rd = first[at[3]], sc = second[at[2]], sd = second[at[3]];
    const double determinant = rc - rd - sc + sd;
    if (determinant == 0) return 0;
    const double row = (sd - sc) / determinant, col = (sd - rd) / determinant;
    if (!(row >= 0 && row <= 1 && col >= 0 && col <= 1)) return 0;
    for (int r = 0; r < size[0]; r++) row_mix[r] = 0;
    for (int c = 0; c < size[1]; c++) col_mix[c] = 0;
    row_mix[at[0]] = row;
    row_mix[at[1]] = 1 - row;
    col_mix[at[2]] = col;
    col_mix[at[3]] = 1 - col;
    return 1;
}

static inline double matrix_largest(const int size[2], const double *payoff) {
    double largest = 0;
    for (int n = 0; n < size[0] * size[1]; n++) largest = fmax(largest, fabs(payoff[n]));
    return largest;
}

/* Games up to 3 x 3 by their square kernels; 0 if none is certainly optimal. */
static inline int matrix_kernels(
        const int size[2], const double *payoff, double *row_mix, double *col_mix, double guarantee[2]) {
    const double largest = matrix_largest(size, payoff);
    if (size[0] == 3 && size[1] == 3 && matrix_all_three(payoff, row_mix, col_mix)) {
        matrix_guarantees(size, payoff, row_mix, col_mix, guarantee);
        if (guarantee[1] - guarantee[0] <= MATRIX_KERNEL_TOLERANCE * largest) return 1;
    }
    for (int r = 0; r < size[0]; r++)
        for (int s = r + 1; s < size[0]; s++)
            for (int c = 0; c < size[1]; c++)
                for (int d = c + 1; d < size[1]; d++) {
                    const int at[4] = {r, s, c, d};
                    if (!matrix_two(size, payoff, at, row_mix, col_mix)) continue;
                    matrix_guarantees(size, payoff, row_mix, col_mix, guarantee);
                    if (guarantee[1] - guarantee[0] <= MATRIX_KERNEL_TOLERANCE * largest) return 1;
                }
    return 0;
}

static __attribute__((noinline, unused)) void matrix_precise(
        const int size[2], const double *payoff, double *row_mix, double *col_mix, double guarantee[2]) {
    const double perturbations[] = {0, 1e-12, 1e-11, 1e-10};
    const double tolerance = MATRIX_SIMPLEX_TOLERANCE * matrix_largest(size, payoff);
    for (int n = 0; n < 4; n++) {
        matrix_simplex(size, payoff, perturbations[n], row_mix, col_mix);
        matrix_guarantees(size, payoff, row_mix, col_mix, guarantee);
        if (guarantee[1] - guarantee[0] <= tolerance) return;
    }
}

/* The value of the game payoff[rows * cols] to the row side, which maximises, and both strategies index they are not
 * NULL. 1 <= rows, cols <= MATRIX_MOST; the payoffs and their range are finite. The value lies between the two values
 * that the strategies guarantee, which differ only by rounding. */
static inline __attribute__((always_inline)) double matrix_game(
        int rows, int cols, const double *payoff, double *row_mix, double *col_mix) {
    int index;
    if (matrix_saddle(rows, cols, payoff, &index)) {
        if (row_mix) for (int r = 0; r < rows; r++) row_mix[r] = r == index / cols;
        if (col_mix) for (int c = 0; c < cols; c++) col_mix[c] = c == index % cols;
        return payoff[index];
    }
    const int size[2] = {rows, cols};
    double row_buffer[MATRIX_MOST], col_buffer[MATRIX_MOST], guarantee[2];
    if (!row_mix) row_mix = row_buffer;
    if (!col_mix) col_mix = col_buffer;
    if (rows > 3 || cols > 3 || !matrix_kernels(size, payoff, row_mix, col_mix, guarantee))
        matrix_precise(size, payoff, row_mix, col_mix, guarantee);
    return 0.5 * (guarantee[0] + guarantee[1]);
}

#endif
