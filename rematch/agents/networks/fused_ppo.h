/* The PPO loss (Schulman et al. 2017, eq. 7 and 9) and its gradient, sample by sample. */

typedef struct {
    float clip, value_clip, value_coef, entropy_coef, magnet_coef;
    int cross; /* the value is a logit, its loss the cross-entropy instead of the squared error */
} Weights;

enum { S_POLICY, S_VALUE, S_ENTROPY, S_KL, S_CLIPPED, S_MAGNET, STATS };

typedef struct {
    const Net *net;
    const float *packed, *transposed;
    Weights w;
    int count;                 /* samples in the minibatch */
    const int64_t *index;      /* [count] rows of the arrays below */
    const float *obs;          /* [.][net->obs] */
    const float *privileged;   /* [.][net->privileged] or NULL */
    const float *action;       /* [.][actions] */
    const int32_t *choice;     /* [.] */
    const uint8_t *mask;       /* [.][actions] or NULL */
    const float *logp, *advantage, *target, *value; /* [.] as recorded while acting */
    const float *magnet;       /* [.][actions] the magnet's means or logits, or NULL */
    const float *magnet_log_std; /* [actions] */
    const float *magnet_inv_var, *var; /* [actions] of Gaussians, with a magnet */
    int chunks, next, alone;   /* `next`: the next chunk for a thread; `alone`: there is one thread */
    int failed;
    float *grads;              /* [chunks][net->layers_size]; one thread has two of them */
    float *first_back;         /* [towers][count, up to whole blocks][out_pad] d loss / d first layer, for the tables */
    int32_t *table_rows[2];    /* [count][categorical] of each tower */
    float *flat;               /* the whole gradient */
    double stats[CHUNKS][STATS];
} Update;

/* d loss / d log-probability of the taken action, from the clipped surrogate; adds to the statistics. */
static inline float surrogate(const Update *u, double *stats, int64_t i, float logp) {
    float log_ratio = logp - u->logp[i], ratio = expf(log_ratio), adv = u->advantage[i];
    float low = 1.0f - u->w.clip, high = 1.0f + u->w.clip;
    float bounded = ratio < low ? low : ratio > high ? high : ratio;
    float plain = ratio * adv, clipped = bounded * adv;
    stats[S_POLICY] -= plain < clipped ? plain : clipped;
    stats[S_KL] += (double)(ratio - 1.0f) - log_ratio; /* Schulman's low-variance estimate */
    stats[S_CLIPPED] += ratio < low || ratio > high;
    return plain <= clipped ? -plain : 0.0f;
}

static inline float value_gradient(const Update *u, double *stats, int64_t i, float v) {
    if (u->w.cross) {
        float p = 1.0f / (1.0f + expf(-v));
        stats[S_VALUE] += (v > 0 ? v : 0) + log1pf(expf(v > 0 ? -v : v)) - u->target[i] * v;
        return u->w.value_coef * (p - u->target[i]);
    }
    float error = v - u->target[i], gradient = 2.0f * error, loss = error * error;
    if (u->w.value_clip > 0) {
        float moved = v - u->value[i], c = u->w.value_clip;
        float clipped = u->value[i] + (moved < -c ? -c : moved > c ? c : moved) - u->target[i];
        if (clipped * clipped > loss) {
            loss = clipped * clipped;
            gradient = moved > -c && moved < c ? 2.0f * clipped : 0.0f;
        }
    }
    stats[S_VALUE] += loss;
    return u->w.value_coef * gradient;
}

static void gaussian_gradient(const Update *u, double *stats, int64_t i, const float *mean, float *d_mean, float *d_log_std, float scale) {
    int n = u->net->actions;
    const float *log_std = u->packed + u->net->log_std, *inv_std = u->transposed + u->net->log_std;
    float logp = 0, entropy = 0, magnet_kl = 0;
    for (int a = 0; a < n; a++) {
        float z = (u->action[i * n + a] - mean[a]) * inv_std[a];
        logp += -0.5f * z * z - log_std[a] - HALF_LOG_2PI;
        entropy += log_std[a] + 0.5f + HALF_LOG_2PI;
    }
    float g = surrogate(u, stats, i, logp);
    for (int a = 0; a < n; a++) {
        float inv = inv_std[a], z = (u->action[i * n + a] - mean[a]) * inv;
        float dm = g * z * inv, ds = g * (z * z - 1.0f) - u->w.entropy_coef;
        if (u->magnet) { /* KL(policy || magnet) of two Gaussians */
            float inv_var = u->magnet_inv_var[a], distance = mean[a] - u->magnet[i * n + a], var = u->var[a];
            magnet_kl += u->magnet_log_std[a] - log_std[a] + 0.5f * (var + distance * distance) * inv_var - 0.5f;
            dm += u->w.magnet_coef * distance * inv_var;
            ds += u->w.magnet_coef * (var * inv_var - 1.0f);
        }
        d_mean[a] = dm * scale;
        d_log_std[a] += ds * scale;
    }
    stats[S_ENTROPY] += entropy;
    stats[S_MAGNET] += magnet_kl;
}

static void choice_gradient(const Update *u, double *stats, int64_t i, const float *logits, float *d_logits, float *scratch, float scale) {
    int n = u->net->actions;
    const uint8_t *mask = u->mask ? u->mask + i * n : NULL;
    float *logp = scratch, *other = scratch + n, entropy = 0, magnet_kl = 0;
    log_softmax(n, logits, mask, logp);
    if (u->magnet) log_softmax(n, u->magnet + i * n, mask, other);
    float g = surrogate(u, stats, i, logp[u->choice[i]]);
    for (int a = 0; a < n; a++) {
        if (mask && !mask[a]) continue;
        float p = expf(logp[a]);
        entropy -= p * logp[a];
        if (u->magnet) magnet_kl += p * (logp[a] - other[a]);
    }
    for (int a = 0; a < n; a++) {
        if (mask && !mask[a]) { d_logits[a] = 0; continue; }
        float p = expf(logp[a]);
        float d = g * ((a == u->choice[i]) - p) + u->w.entropy_coef * p * (logp[a] + entropy);
        if (u->magnet) d += u->w.magnet_coef * p * (logp[a] - other[a] - magnet_kl);
        d_logits[a] = d * scale;
    }
    stats[S_ENTROPY] += entropy;
    stats[S_MAGNET] += magnet_kl;
}

/* Prefetch a sample of the next block: its rows lie anywhere in the rollout. */
static inline void prefetch(const Update *u, int64_t i) {
    const float *obs = u->obs + i * u->net->obs;
    for (int at = 0; at < u->net->obs; at += 16) __builtin_prefetch(obs + at);
    __builtin_prefetch(obs + u->net->obs - 1);
    if (u->privileged)
        for (int at = 0; at < u->net->privileged; at += 16) __builtin_prefetch(u->privileged + i * u->net->privileged + at);
    if (!u->net->discrete) __builtin_prefetch(u->action + i * u->net->actions);
    else __builtin_prefetch(u->choice + i);
    if (u->mask) __builtin_prefetch(u->mask + i * u->net->actions);
    if (u->magnet) __builtin_prefetch(u->magnet + i * u->net->actions);
    if (u->w.value_clip > 0) __builtin_prefetch(u->value + i);
    __builtin_prefetch(u->logp + i);
    __builtin_prefetch(u->advantage + i);
    __builtin_prefetch(u->target + i);
}

/* Writes the gradient of a chunk into `grad`, or adds it there: `mode` is START, or ADD where the chunk is one block.
 * scratch: 2 * actions floats. */
static void chunk_run(Update *u, int chunk, float *grad, int mode, Block *b, float *scratch) {
    const Net *net = u->net;
    int blocks = (u->count + BLOCK - 1) / BLOCK;
    int from = (int)((int64_t)blocks * chunk / u->chunks), to = (int)((int64_t)blocks * (chunk + 1) / u->chunks);
    float scale = 1.0f / (float)u->count, *log_std_back = scratch;
    double *stats = u->stats[chunk];
    int last = net->towers - 1, head = net->dense[0][net->layers].out_pad, critic = net->dense[last][net->layers].out_pad;
    if (mode == START) clear_padding(net, grad);
    if (!net->discrete) memset(log_std_back, 0, sizeof(float) * (size_t)net->actions);
    for (int at = from * BLOCK; at < to * BLOCK; at += BLOCK) {
        int block_rows = u->count - at < BLOCK ? u->count - at : BLOCK;
        for (int r = 0; r < block_rows; r++) {
            int64_t i = u->index[at + r];
            if (at + BLOCK + r < u->count) prefetch(u, u->index[at + BLOCK + r]);
            gather(net, b, r, u->obs + i * net->obs, u->privileged ? u->privileged + i * net->privileged : NULL);
        }
        for (int r = block_rows; r < BLOCK; r++) gather_zeros(net, b, r);
        forward(net, u->packed, b, BLOCK, net->towers);
        for (int t = 0; t < net->towers; t++)
            memset(b->head_back[t], 0, sizeof(float) * BLOCK * (size_t)net->dense[t][net->layers].out_pad);
        for (int r = 0; r < block_rows; r++) {
            int64_t i = u->index[at + r];
            float *d = b->head_back[0] + r * head;
            if (net->discrete) choice_gradient(u, stats, i, policy_out(net, b, r), d, scratch, scale);
            else gaussian_gradient(u, stats, i, policy_out(net, b, r), d, log_std_back, scale);
            b->head_back[last][r * critic + (net->shared ? net->actions : 0)] = value_gradient(u, stats, i, value_out(net, b, r)) * scale;
        }
        if (net->categorical[last]) {
            size_t wide = (size_t)net->dense[0][0].out_pad, room = (size_t)blocks * BLOCK;
            for (int t = 0; t < net->towers; t++) b->first_back[t] = u->first_back + ((size_t)t * room + at) * wide;
            for (int e = 0; e < net->input_sets; e++)
                memcpy(u->table_rows[e] + (size_t)at * net->categorical[e], b->table_rows[e], sizeof(int32_t) * (size_t)block_rows * (size_t)net->categorical[e]);
        }
        backward(net, u->transposed, b, grad, at > from * BLOCK ? CONTINUE : mode);
    }
    for (int a = 0; !net->discrete && a < net->actions; a++) grad[net->log_std + a] += log_std_back[a];
}

/* The gradient of the tables: the first-layer gradient of every sample is added to its table rows. Each thread has some
 * columns and processes the samples in order, so that no sum depends on the number of threads. */
typedef struct { Update *u; int from, to; } Columns;

static void *tables_thread(void *argument) {
    const Columns *columns = argument;
    const Update *u = columns->u;
    const Net *net = u->net;
    int width = net->width[0], wide = net->dense[0][0].out_pad, to = columns->to < width ? columns->to : width;
    for (int t = 0; t < net->towers; t++) {
        float *table = u->flat + net->flat_table[t];
        const float *back = u->first_back + (size_t)t * (size_t)((u->count + BLOCK - 1) / BLOCK * BLOCK) * wide;
        for (int s = 0; s < u->count; s++)
            for (int k = 0; k < net->categorical[t]; k++) {
                int32_t row = u->table_rows[t][(size_t)s * net->categorical[t] + k];
                if (row < 0) continue; /* the loss is NaN already */
                float *sum = table + (size_t)row * width;
                const float *gradient = back + (size_t)s * wide;
                for (int n = columns->from; n < to; n++) sum[n] += gradient[n];
            }
    }
    return NULL;
}

static void add_tables(Update *u, int threads) {
    pthread_t started[MAX_THREADS];
    Columns shares[MAX_THREADS];
    int blocks = u->net->dense[0][0].out_pad / PAD, running = 0;
    for (int t = 0; t < u->net->towers; t++)
        memset(u->flat + u->net->flat_table[t], 0, sizeof(float) * (size_t)u->net->rows[t] * (size_t)u->net->width[0]);
    if (threads > blocks) threads = blocks;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    for (int t = threads - 1; t >= 0; t--) {
        Columns columns = {u, blocks * t / threads * PAD, blocks * (t + 1) / threads * PAD};
        shares[t] = columns;
        if (t && !pthread_create(&started[running], NULL, tables_thread, &shares[t])) running++;
        else tables_thread(&shares[t]);
    }
    for (int t = 0; t < running; t++) pthread_join(started[t], NULL);
}

static void add_chunk(long count, const float *restrict chunk, float *restrict sum) {
    for (long i = 0; i < count; i++) sum[i] += chunk[i];
}

/* One thread adds each chunk as soon as it is known, in the same order: two gradients in the caches instead of many. */
static void sum_chunks(Update *u, Block *block, float *scratch) {
    int size = u->net->layers_size, single = (u->count + BLOCK - 1) / BLOCK == u->chunks;
    chunk_run(u, 0, u->grads, START, block, scratch);
    for (int chunk = 1; chunk < u->chunks; chunk++) {
        chunk_run(u, chunk, single ? u->grads : u->grads + size, single ? ADD : START, block, scratch);
        if (!single) add_chunk(size, u->grads + size, u->grads);
    }
}

static void *update_thread(void *argument) {
    Update *u = argument;
    Block block;
    float *scratch = malloc(sizeof(float) * 2 * (size_t)u->net->actions);
    if (!scratch || !block_make(u->net, &block, BLOCK, 1)) {
        __sync_fetch_and_or(&u->failed, 1); /* several threads may fail */
        free(scratch);
        return NULL;
    }
    if (u->alone) sum_chunks(u, &block, scratch);
    else
        for (int chunk; (chunk = __sync_fetch_and_add(&u->next, 1)) < u->chunks;)
            chunk_run(u, chunk, u->grads + (size_t)chunk * u->net->layers_size, START, &block, scratch);
    free(block.memory);
    free(scratch);
    return NULL;
}

/* Variances of a Gaussian policy and its magnet, which are the same for all samples; `memory` holds 2 * actions floats. */
static void set_variances(Update *u, float *memory) {
    int n = u->net->actions;
    if (u->net->discrete || !u->magnet) return;
    for (int a = 0; a < n; a++) {
        memory[a] = expf(-2.0f * u->magnet_log_std[a]);
        memory[n + a] = expf(2.0f * u->packed[u->net->log_std + a]);
    }
    u->magnet_inv_var = memory;
    u->var = memory + n;
}

/* Writes the gradient of the mean loss into `flat` and mean statistics into `stats`. Threads exist for this call only:
 * starting one takes about 20 us, and there are no barriers on which a busy machine would wait. */
static int ppo_gradient(Update *u, int threads, float *flat, double *stats) {
    const Net *net = u->net;
    pthread_t started[MAX_THREADS];
    int blocks = (u->count + BLOCK - 1) / BLOCK, running = 0;
    u->chunks = blocks < CHUNKS ? blocks : CHUNKS;
    u->next = u->failed = 0;
    memset(u->stats, 0, sizeof u->stats);
    float *memory;
    int categorical = net->categorical[net->towers - 1]; /* columns of the critic: those of the actor, and privileged ones */
    size_t backs = categorical ? (size_t)net->towers * blocks * BLOCK * net->dense[0][0].out_pad : 0;
    size_t row_numbers = (size_t)u->count * (size_t)(net->categorical[0] + (net->input_sets == 2 ? categorical : 0));
    if (threads > u->chunks) threads = u->chunks;
    u->alone = threads <= 1;
    size_t grads = (size_t)net->layers_size * (size_t)(u->alone ? 2 : u->chunks);
    size_t total = (size_t)net->layers_size + grads + backs + row_numbers + 2 * (size_t)net->actions;
    if (posix_memalign((void **)&memory, 64, sizeof(float) * total)) return 0;
    u->grads = memory + net->layers_size;
    u->first_back = u->grads + grads;
    u->table_rows[0] = (int32_t *)(u->first_back + backs);
    u->table_rows[1] = u->table_rows[0] + (net->input_sets == 2 ? (size_t)u->count * (size_t)net->categorical[0] : 0);
    u->flat = flat;
    net_transpose(net, u->packed, memory);
    u->transposed = memory;
    set_variances(u, memory + total - 2 * net->actions);
    for (int t = 1; t < threads && t < MAX_THREADS; t++)
        if (!pthread_create(&started[running], NULL, update_thread, u)) running++;
    update_thread(u);
    for (int t = 0; t < running; t++) pthread_join(started[t], NULL);
    if (categorical && !u->failed) add_tables(u, threads);
    for (int c = 1; c < u->chunks && !u->alone; c++) add_chunk(net->layers_size, u->grads + (size_t)c * net->layers_size, u->grads);
    net_unpack(net, u->grads, flat);
    for (int s = 0; s < STATS; s++) {
        stats[s] = 0;
        for (int c = 0; c < u->chunks; c++) stats[s] += u->stats[c][s];
        stats[s] /= u->count;
    }
    free(memory);
    return !u->failed;
}

/* --- the step ---------------------------------------------------------------------------------------- */

typedef struct {
    float rate;      /* learning rate / (1 - b1^t): bias correction of the first moment */
    float b1, b2, epsilon;
    float bias;      /* 1 - b2^t: bias correction of the second moment */
    float scale;     /* of the gradient: less than 1 where it is clipped */
} Adam;

/* Adam (Kingma and Ba 2015, algorithm 1), one pass over memory. */
static void adam_step(const Adam *k, long count, const float *restrict grad, float *restrict first,
                      float *restrict second, float *restrict weights) {
    float rate = k->rate, keep1 = 1.0f - k->b1, keep2 = 1.0f - k->b2, unbias = 1.0f / k->bias, epsilon = k->epsilon;
    float scale = k->scale;
    for (long i = 0; i < count; i++) {
        float g = grad[i] * scale, m = first[i] + keep1 * (g - first[i]), v = second[i] + keep2 * (g * g - second[i]);
        first[i] = m;
        second[i] = v;
        weights[i] -= rate * m / (sqrtf(v * unbias) + epsilon);
    }
}
