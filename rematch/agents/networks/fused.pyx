"""Python interface of fused.h: checks shapes and releases the GIL."""

import numpy as np
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #ifndef REMATCH_BUILD
    #define REMATCH_BUILD ""
    #endif
    """
    const char *REMATCH_BUILD

cdef extern from "fused.h" nogil:
    enum: BLOCK
    enum: MAX_LAYERS
    enum: STATS
    ctypedef struct Net:
        int obs, privileged, fourier, actions, discrete, shared, relu, layers
        int width[8]
        const int *categories
        const int *first_row
        int packed
        int log_std
    ctypedef struct Weights:
        float clip, value_clip, value_coef, entropy_coef, magnet_coef
        int cross
    ctypedef struct Acting:
        const Net *net
        const float *packed
        int slots, rows, greedy
        const int32_t *slot
        const uint8_t *acting
        const float *obs
        const float *privileged
        const uint8_t *mask
        const uint32_t *number
        uint64_t key
        uint32_t step_low, step_high
        float *action
        int32_t *choice
        float *logp
        float *value
        float *heads
    ctypedef struct Update:
        const Net *net
        const float *packed
        Weights w
        int count
        const int64_t *index
        const float *obs
        const float *privileged
        const float *action
        const int32_t *choice
        const uint8_t *mask
        const float *logp
        const float *advantage
        const float *target
        const float *value
        const float *magnet
        const float *magnet_log_std
    ctypedef struct Adam:
        float rate, b1, b2, epsilon, bias, scale
    void net_plan(Net *net)
    void net_pack(const Net *net, const float *flat, float *packed)
    int act_rows(const Acting *a)
    void act_choice(const Acting *a, const float *logits, int row, float *scratch)
    void act_gaussian(const Acting *a, const float *log_std, const float *std, const float *mean, long stride, const int *order, int rows)
    int ppo_gradient(Update *u, int threads, float *flat, double *stats)
    void adam_step(const Adam *k, long count, const float *grad, float *first, float *second, float *weights)

cdef extern from "matrix_game.h" nogil:
    enum: MATRIX_MOST
    double matrix_game(int rows, int cols, const double *payoff, double *row_mix, double *col_mix)

BUILD = REMATCH_BUILD.decode()
STAT_NAMES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "magnet_kl")


def adam(float[::1] weights not None, const float[::1] grad not None, float[::1] first not None,
         float[::1] second not None, numbers):
    """One step of Adam in place; all arrays are [P]. numbers: as of Adam in fused_ppo.h."""
    cdef Adam k
    cdef long count = weights.shape[0]
    if count == 0 or grad.shape[0] != count or first.shape[0] != count or second.shape[0] != count:
        raise ValueError("arrays of different length")
    k.rate, k.b1, k.b2, k.epsilon, k.bias, k.scale = numbers
    with nogil:
        adam_step(&k, count, &grad[0], &first[0], &second[0], &weights[0])


def matrix_games(const double[:, :, ::1] payoff not None, double[::1] value not None, double[:, ::1] rows not None,
                 double[:, ::1] columns not None):
    """Solve zero-sum games [n, A, B] whose rows maximise: values [n] and mixed strategies [n, A], [n, B]."""
    cdef Py_ssize_t n, count = payoff.shape[0]
    cdef int a = payoff.shape[1], b = payoff.shape[2]
    if not (1 <= a <= MATRIX_MOST and 1 <= b <= MATRIX_MOST) or value.shape[0] != count or rows.shape[0] != count \
            or columns.shape[0] != count or rows.shape[1] != a or columns.shape[1] != b:
        raise ValueError("payoff, value, rows and columns have shapes that do not match")
    with nogil:
        for n in range(count):
            value[n] = matrix_game(a, b, &payoff[n, 0, 0], &rows[n, 0], &columns[n, 0])


def sample(const float[:, ::1] heads not None, log_std, const uint32_t[::1] number not None, draw, action not None,
           float[::1] logp not None, mask=None, bint greedy=False):
    """Sample actions and their log-probabilities from means or logits [n, A] of any network, as `Network.act` does.

    log_std: [A] for continuous actions, None for discrete ones. draw, number: as for `Network.act`.
    """
    cdef Acting a
    cdef Net net
    cdef const uint8_t[:, ::1] mask_view
    cdef float[:, ::1] action_floats
    cdef int32_t[::1] action_ints
    cdef float[::1] spread, scratch
    cdef int[::1] order
    cdef Py_ssize_t row, rows = heads.shape[0]
    cdef int size = heads.shape[1]
    if rows == 0:
        return
    if number.shape[0] != rows or logp.shape[0] != rows or action.shape[0] != rows:
        raise ValueError("arrays of different length")
    net.actions, net.discrete = size, log_std is None
    a.net, a.greedy, a.number, a.logp, a.mask = &net, greedy, &number[0], &logp[0], NULL
    a.key = draw[0]
    a.step_low, a.step_high = <uint32_t>(<uint64_t>draw[1]), <uint32_t>(<uint64_t>draw[1] >> 32)
    if mask is not None:
        mask_view = mask
        if mask_view.shape[0] != rows or mask_view.shape[1] != size:
            raise ValueError("mask has another shape")
        a.mask = &mask_view[0, 0]
    if log_std is None:
        action_ints, scratch = action, np.empty(size, np.float32)
        a.choice = &action_ints[0]
        for row in range(rows):
            act_choice(&a, &heads[row, 0], row, &scratch[0])
        return
    action_floats, spread = action, np.array(log_std, np.float32)
    if action_floats.shape[1] != size or spread.shape[0] != size:
        raise ValueError("action or log_std has another shape")
    scratch = np.exp(spread)
    a.action = &action_floats[0, 0]
    order = np.arange(rows, dtype=np.intc)
    for row in range(0, rows, BLOCK):
        act_gaussian(&a, &spread[0], &scratch[0], &heads[row, 0], size, &order[row], min(BLOCK, rows - row))


cdef class Network:
    """The shape of one actor-critic network, without weights."""

    cdef Net net
    cdef int[::1] categories, first_row
    cdef readonly int inputs, privileged, actions, size
    cdef readonly bint discrete

    def __init__(self, categories, int actions, bint discrete, hidden, bint shared, str activation, int fourier=0, privileged=()):
        """categories: per observation column the number of its categories, 0 for a number.

        privileged: the same for the columns that only the critic reads; it then has its own tower.
        """
        if len(hidden) > MAX_LAYERS:
            raise ValueError(f"at most {MAX_LAYERS} hidden layers, not {len(hidden)}")
        if activation not in ("tanh", "relu"):
            raise ValueError(f"activation = {activation!r}: expected tanh or relu")
        cdef int inputs = len(categories)
        if inputs == 0:
            raise ValueError("categories is empty: expected at least one column")
        if len(privileged) and shared:
            raise ValueError("privileged columns: expected shared = False")
        self.categories = np.array([*categories, *privileged], np.intc)
        self.first_row = (np.cumsum(self.categories) - np.asarray(self.categories)).astype(np.intc)
        self.net.categories, self.net.first_row = &self.categories[0], &self.first_row[0]
        self.inputs, self.privileged, self.actions, self.discrete = inputs, len(privileged), actions, discrete
        self.net.privileged = len(privileged)
        self.net.obs, self.net.fourier, self.net.actions, self.net.discrete = inputs, fourier, actions, discrete
        self.net.shared, self.net.relu, self.net.layers = shared, activation == "relu", len(hidden)
        size, last = 0, hidden[len(hidden) - 1]
        for columns in (categories,) if shared else (categories, [*categories, *privileged]):
            inputs_before = sum(n == 0 for n in columns) * (1 + 2 * fourier) + sum(columns)
            for i, width in enumerate(hidden):
                self.net.width[i] = width
                size += width * inputs_before + width
                inputs_before = width
        size += actions * last + actions + last + 1 + (0 if discrete else actions)
        self.size = size
        net_plan(&self.net)

    @property
    def packed_size(self):
        return self.net.packed

    def pack(self, const float[:, ::1] flat not None, float[:, ::1] out not None):
        """Copy weights [S, size] into the padded layout of fused.h, [S, packed_size]."""
        cdef int s
        if flat.shape[1] != self.size or out.shape[1] != self.net.packed or out.shape[0] < flat.shape[0]:
            raise ValueError("weights do not have this network's size")
        for s in range(flat.shape[0]):
            net_pack(&self.net, &flat[s, 0], &out[s, 0])

    def act(self, const float[:, ::1] packed not None, const int32_t[::1] slot not None, const float[:, ::1] obs not None,
            const uint32_t[::1] number not None, draw, action not None, float[::1] logp not None, float[::1] value,
            acting=None, mask=None, heads=None, bint greedy=False, privileged=None):
        """Write action, logp, value (and heads) of the rows whose slot is one of `packed`; other rows do not change.

        draw: (64-bit key, step); with number [rows] they determine all random numbers. A centralized critic needs
        `privileged` [rows, privileged columns]; without it the values do not change. With value None none are computed.
        """
        cdef Acting a
        cdef const float[:, ::1] privileged_view
        cdef const uint8_t[::1] acting_view
        cdef const uint8_t[:, ::1] mask_view
        cdef float[:, ::1] heads_view
        cdef float[:, ::1] action_floats
        cdef int32_t[::1] action_ints
        cdef int done
        cdef Py_ssize_t rows = obs.shape[0]
        if packed.shape[1] != self.net.packed or obs.shape[1] != self.inputs:
            raise ValueError("network and arrays do not fit")
        if slot.shape[0] != rows or number.shape[0] != rows or logp.shape[0] != rows or action.shape[0] != rows \
                or (value is not None and value.shape[0] != rows):
            raise ValueError("arrays of different length")
        if rows == 0:
            return
        a.net, a.packed, a.slots, a.rows, a.greedy = &self.net, &packed[0, 0], packed.shape[0], rows, greedy
        a.slot, a.obs, a.logp, a.value = &slot[0], &obs[0, 0], &logp[0], NULL if value is None else &value[0]
        a.acting, a.mask, a.heads, a.action, a.choice, a.privileged = NULL, NULL, NULL, NULL, NULL, NULL
        if self.net.privileged and privileged is not None:
            privileged_view = privileged
            if privileged_view.shape[0] != rows or privileged_view.shape[1] != self.net.privileged:
                raise ValueError("privileged has another shape")
            a.privileged = &privileged_view[0, 0]
        if acting is not None:
            acting_view = acting
            if acting_view.shape[0] != rows:
                raise ValueError("acting has another length")
            a.acting = &acting_view[0]
        if mask is not None:
            mask_view = mask
            if mask_view.shape[0] != rows or mask_view.shape[1] != self.actions:
                raise ValueError("mask has another shape")
            a.mask = &mask_view[0, 0]
        if heads is not None:
            heads_view = heads
            if heads_view.shape[0] != rows or heads_view.shape[1] != self.actions:
                raise ValueError("heads has another shape")
            a.heads = &heads_view[0, 0]
        if self.discrete:
            action_ints = action
            a.choice = &action_ints[0]
        else:
            action_floats = action
            if action_floats.shape[1] != self.actions:
                raise ValueError("action has another shape")
            a.action = &action_floats[0, 0]
        a.number = &number[0]
        a.key = draw[0]
        a.step_low, a.step_high = <uint32_t>(<uint64_t>draw[1]), <uint32_t>(<uint64_t>draw[1] >> 32)
        with nogil:
            done = act_rows(&a)
        if not done:
            raise MemoryError

    def gradient(self, const float[::1] packed not None, const int64_t[::1] index not None, batch, coefficients,
                 int threads, float[::1] out not None, bint cross=False):
        """Gradient [size] of the mean PPO loss over batch rows `index` into `out`; returns the mean statistics.

        batch: dict of arrays obs [M, F], action [M, A] or [M], logp, advantage, target, value [M], and where used
        mask [M, A], privileged [M, privileged columns], magnet [M, A] with magnet_log_std [A]. coefficients: (clip,
        value_clip, value, entropy, magnet). With `cross` the value is a logit and its loss the cross-entropy with
        `target`, a probability.
        """
        cdef Update u
        cdef double stats[16]
        cdef const float[:, ::1] privileged
        cdef const float[:, ::1] obs = batch["obs"]
        cdef const float[::1] logp = batch["logp"]
        cdef const float[::1] advantage = batch["advantage"]
        cdef const float[::1] target = batch["target"]
        cdef const float[::1] value = batch["value"]
        cdef const float[:, ::1] action_floats
        cdef const int32_t[::1] action_ints
        cdef const uint8_t[:, ::1] mask
        cdef const float[:, ::1] magnet
        cdef const float[::1] magnet_log_std
        cdef int done
        cdef Py_ssize_t rows = obs.shape[0]
        if packed.shape[0] != self.net.packed or obs.shape[1] != self.inputs or out.shape[0] != self.size:
            raise ValueError("network and arrays do not fit")
        if logp.shape[0] != rows or advantage.shape[0] != rows or target.shape[0] != rows or value.shape[0] != rows:
            raise ValueError("arrays of different length")
        if index.shape[0] == 0 or np.min(index) < 0 or np.max(index) >= rows:
            raise ValueError("index is empty or outside the batch")
        u.net, u.packed, u.count, u.index = &self.net, &packed[0], index.shape[0], &index[0]
        u.obs, u.logp, u.advantage, u.target, u.value = &obs[0, 0], &logp[0], &advantage[0], &target[0], &value[0]
        u.action, u.choice, u.mask, u.magnet, u.magnet_log_std, u.privileged = NULL, NULL, NULL, NULL, NULL, NULL
        if self.net.privileged:
            privileged = batch["privileged"]
            if privileged.shape[0] != rows or privileged.shape[1] != self.net.privileged:
                raise ValueError("privileged has another shape")
            u.privileged = &privileged[0, 0]
        if self.discrete:
            action_ints = batch["action"]
            taken = np.asarray(batch["action"])[np.asarray(index)]
            if action_ints.shape[0] != rows or np.min(taken) < 0 or np.max(taken) >= self.actions:
                raise ValueError("actions are outside 0 .. actions - 1")
            u.choice = &action_ints[0]
        else:
            action_floats = batch["action"]
            if action_floats.shape[0] != rows or action_floats.shape[1] != self.actions:
                raise ValueError("action has another shape")
            u.action = &action_floats[0, 0]
        if batch.get("mask") is not None:
            mask = batch["mask"]
            if mask.shape[0] != rows or mask.shape[1] != self.actions:
                raise ValueError("mask has another shape")
            u.mask = &mask[0, 0]
        if batch.get("magnet") is not None:
            magnet = batch["magnet"]
            if magnet.shape[0] != rows or magnet.shape[1] != self.actions:
                raise ValueError("magnet has another shape")
            u.magnet = &magnet[0, 0]
            if not self.discrete:
                magnet_log_std = batch["magnet_log_std"]
                if magnet_log_std.shape[0] != self.actions:
                    raise ValueError("magnet_log_std has another length")
                u.magnet_log_std = &magnet_log_std[0]
        u.w.clip, u.w.value_clip, u.w.value_coef, u.w.entropy_coef, u.w.magnet_coef = coefficients
        u.w.cross = cross
        with nogil:
            done = ppo_gradient(&u, threads, &out[0], stats)
        if not done:
            raise MemoryError
        return {name: stats[i] for i, name in enumerate(STAT_NAMES)}
