/* The PPO loss (Schulman et al. 2017, eq. 7 and 9) and its gradient, sample by sample. */

typedef struct {
    float clip, value_clip, value_coef, entropy_coef, magnet_coef;
    int cross; /* the value is the logit of a probability: cross-entropy in the place of the squared error */
} Weights;

enum { S_POLICY, S_VALUE, S_ENTROPY, S_KL, S_CLIPPED, S_MAGNET, STATS };

typedef struct {
    const Net *net;
    const float *packed, *transposed;
    Weights w;
    int count;                 /* samples in the minibatch */
    const int64_t *index;      /* [count] rows of the arrays below */
    const float *obs;        /* [.][net->obs] */
    const float *privileged;        /* [.][net->privileged] or NULL */
    const float *action;       /* [.][actions] */
    const int32_t *choice;     /* [.] */
    const uint8_t *mask;       /* [.][actions] or NULL */
    const float *logp, *advantage, *target, *value; /* [.] as recorded while acting */
    const float *magnet;       /* [.][actions] the magnet's means or logits, or NULL */
    const float *magnet_log_std; /* [actions] */
    int chunks, next;          /* `next` is claimed by threads */
    int failed;
    float *grads;              /* [chunks][net->layers_size] */
    float *first_back;         /* [towers][count, up to whole blocks][out_pad] d loss / d first layer, for the tables */
    int32_t *named[2];         /* [count][names] of each tower */
    float *flat;               /* the whole gradient */
    double stats[CHUNKS][STATS];
} Update;

/* d loss / d log-probability of the taken action, from the clipped surrogate; notes the statistics. */
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

static inline float value_slope(const Update *u, double *stats, int64_t i, float v) {
    if (u->w.cross) {
        float p = 1.0f / (1.0f + expf(-v));
        stats[S_VALUE] += (v > 0 ? v : 0) + log1pf(expf(v > 0 ? -v : v)) - u->target[i] * v;
        return u->w.value_coef * (p - u->target[i]);
    }
    float error = v - u->target[i], slope = 2.0f * error, loss = error * error;
    if (u->w.value_clip > 0) {
        float moved = v - u->value[i], c = u->w.value_clip;
        float near = u->value[i] + (moved < -c ? -c : moved > c ? c : moved) - u->target[i];
        if (near * near > loss) {
            loss = near * near;
            slope = moved > -c && moved < c ? 2.0f * near : 0.0f;
        }
    }
    stats[S_VALUE] += loss;
    return u->w.value_coef * slope;
}

static void gaussian_slope(const Update *u, double *stats, int64_t i, const float *mean, float *d_mean, float *d_log_std, float scale) {
    int n = u->net->actions;
    const float *log_std = u->packed + u->net->log_std, *inv_std = u->transposed + u->net->log_std;
    float logp = 0, entropy = 0, pull = 0;
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
            float inv_var = expf(-2.0f * u->magnet_log_std[a]), far = mean[a] - u->magnet[i * n + a];
            float var = expf(2.0f * log_std[a]);
            pull += u->magnet_log_std[a] - log_std[a] + 0.5f * (var + far * far) * inv_var - 0.5f;
            dm += u->w.magnet_coef * far * inv_var;
            ds += u->w.magnet_coef * (var * inv_var - 1.0f);
        }
        d_mean[a] = dm * scale;
        d_log_std[a] += ds * scale;
    }
    stats[S_ENTROPY] += entropy;
    stats[S_MAGNET] += pull;
}

static void choice_slope(const Update *u, double *stats, int64_t i, const float *logits, float *d_logits, float *scratch, float scale) {
    int n = u->net->actions;
    const uint8_t *mask = u->mask ? u->mask + i * n : NULL;
    float *logp = scratch, *other = scratch + n, entropy = 0, pull = 0;
    log_softmax(n, logits, mask, logp);
    if (u->magnet) log_softmax(n, u->magnet + i * n, mask, other);
    float g = surrogate(u, stats, i, logp[u->choice[i]]);
    for (int a = 0; a < n; a++) {
        if (mask && !mask[a]) continue;
        float p = expf(logp[a]);
        entropy -= p * logp[a];
        if (u->magnet) pull += p * (logp[a] - other[a]);
    }
    for (int a = 0; a < n; a++) {
        if (mask && !mask[a]) { d_logits[a] = 0; continue; }
        float p = expf(logp[a]);
        float d = g * ((a == u->choice[i]) - p) + u->w.entropy_coef * p * (logp[a] + entropy);
        if (u->magnet) d += u->w.magnet_coef * p * (logp[a] - other[a] - pull);
        d_logits[a] = d * scale;
    }
    stats[S_ENTROPY] += entropy;
    stats[S_MAGNET] += pull;
}

/* Ask for a sample that the next block will need: its rows lie anywhere in the tape. */
static inline void fetch(const Update *u, int64_t i) {
    const float *obs = u->obs + i * u->net->obs;
    for (int at = 0; at < u->net->obs; at += 16) __builtin_prefetch(obs + at);
    __builtin_prefetch(obs + u->net->obs - 1);
    if (u->privileged)
        for (int at = 0; at < u->net->privileged; at += 16) __builtin_prefetch(u->privileged + i * u->net->privileged + at);
    if (!u->net->discrete) __builtin_prefetch(u->action + i * u->net->actions);
    __builtin_prefetch(u->logp + i);
    __builtin_prefetch(u->advantage + i);
    __builtin_prefetch(u->target + i);
}

static void chunk_run(Update *u, int chunk, Block *b, float *scratch) {
    const Net *net = u->net;
    int blocks = (u->count + BLOCK - 1) / BLOCK;
    int from = (int)((int64_t)blocks * chunk / u->chunks), to = (int)((int64_t)blocks * (chunk + 1) / u->chunks);
    float *grad = u->grads + (size_t)chunk * net->layers_size, scale = 1.0f / (float)u->count;
    double *stats = u->stats[chunk];
    int last = net->towers - 1, head = net->dense[0][net->layers].out_pad, critic = net->dense[last][net->layers].out_pad;
    memset(grad + net->log_std, 0, sizeof(float) * (size_t)(net->layers_size - net->log_std));
    for (int at = from * BLOCK; at < to * BLOCK; at += BLOCK) {
        int here = u->count - at < BLOCK ? u->count - at : BLOCK;
        for (int r = at + BLOCK; r < at + 2 * BLOCK && r < u->count; r++) fetch(u, u->index[r]);
        for (int r = 0; r < here; r++) {
            int64_t i = u->index[at + r];
            gather(net, b, r, u->obs + i * net->obs, u->privileged ? u->privileged + i * net->privileged : NULL);
        }
        for (int r = here; r < BLOCK; r++) gather_nothing(net, b, r);
        forward(net, u->packed, b, BLOCK, net->towers);
        for (int t = 0; t < net->towers; t++)
            memset(b->head_back[t], 0, sizeof(float) * BLOCK * (size_t)net->dense[t][net->layers].out_pad);
        for (int r = 0; r < here; r++) {
            int64_t i = u->index[at + r];
            float *d = b->head_back[0] + r * head;
            if (net->discrete) choice_slope(u, stats, i, policy_out(net, b, r), d, scratch, scale);
            else gaussian_slope(u, stats, i, policy_out(net, b, r), d, grad + net->log_std, scale);
            b->head_back[last][r * critic + (net->shared ? net->actions : 0)] = value_slope(u, stats, i, value_out(net, b, r)) * scale;
        }
        if (net->names[last]) {
            size_t wide = (size_t)net->dense[0][0].out_pad, room = (size_t)blocks * BLOCK;
            for (int t = 0; t < net->towers; t++) b->first_back[t] = u->first_back + ((size_t)t * room + at) * wide;
            for (int e = 0; e < net->eyes; e++)
                memcpy(u->named[e] + (size_t)at * net->names[e], b->named[e], sizeof(int32_t) * (size_t)here * (size_t)net->names[e]);
        }
        backward(net, u->transposed, b, grad, at > from * BLOCK);
    }
}

/* The tables' gradient: every sample's slope of the first layer is added to the rows it named. Each thread has some
 * columns and goes through the samples in order, so no sum depends on the number of threads. */
typedef struct { Update *u; int from, to; } Columns;

static void *tables_thread(void *argument) {
    const Columns *mine = argument;
    const Update *u = mine->u;
    const Net *net = u->net;
    int width = net->width[0], wide = net->dense[0][0].out_pad, to = mine->to < width ? mine->to : width;
    for (int t = 0; t < net->towers; t++) {
        float *table = u->flat + net->flat_table[t];
        const float *back = u->first_back + (size_t)t * (size_t)((u->count + BLOCK - 1) / BLOCK * BLOCK) * wide;
        for (int s = 0; s < u->count; s++)
            for (int k = 0; k < net->names[t]; k++) {
                int32_t row = u->named[t][(size_t)s * net->names[t] + k];
                if (row < 0) continue; /* the loss is NaN already */
                float *sum = table + (size_t)row * width;
                const float *slope = back + (size_t)s * wide;
                for (int n = mine->from; n < to; n++) sum[n] += slope[n];
            }
    }
    return NULL;
}

static void add_tables(Update *u, int threads) {
    pthread_t started[MOST_THREADS];
    Columns share[MOST_THREADS];
    int blocks = u->net->dense[0][0].out_pad / PAD, running = 0;
    for (int t = 0; t < u->net->towers; t++)
        memset(u->flat + u->net->flat_table[t], 0, sizeof(float) * (size_t)u->net->rows[t] * (size_t)u->net->width[0]);
    if (threads > blocks) threads = blocks;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (int t = threads - 1; t >= 0; t--) {
        Columns mine = {u, blocks * t / threads * PAD, blocks * (t + 1) / threads * PAD};
        share[t] = mine;
        if (t && !pthread_create(&started[running], NULL, tables_thread, &share[t])) running++;
        else tables_thread(&share[t]);
    }
    for (int t = 0; t < running; t++) pthread_join(started[t], NULL);
}

static void *update_thread(void *argument) {
    Update *u = argument;
    Block block;
    float *scratch = malloc(sizeof(float) * 2 * (size_t)u->net->actions);
    if (!scratch || !block_make(u->net, &block)) {
        __sync_fetch_and_or(&u->failed, 1); /* several threads may */
        free(scratch);
        return NULL;
    }
    for (int chunk; (chunk = __sync_fetch_and_add(&u->next, 1)) < u->chunks;) chunk_run(u, chunk, &block, scratch);
    free(block.memory);
    free(scratch);
    return NULL;
}

static void add_chunk(long count, const float *restrict chunk, float *restrict sum) {
    for (long i = 0; i < count; i++) sum[i] += chunk[i];
}

/* Gradient of the mean loss into `flat` and mean statistics into `stats`. Threads live for this call only:
 * starting one costs some 20 us, waiting ones cost nothing, and a busy machine never waits on a barrier. */
static int ppo_gradient(Update *u, int threads, float *flat, double *stats) {
    const Net *net = u->net;
    pthread_t started[MOST_THREADS];
    int blocks = (u->count + BLOCK - 1) / BLOCK, running = 0;
    u->chunks = blocks < CHUNKS ? blocks : CHUNKS;
    u->next = u->failed = 0;
    memset(u->stats, 0, sizeof u->stats);
    float *memory;
    int names = net->names[net->towers - 1]; /* the critic's are the actor's, and those privileged */
    size_t backs = names ? (size_t)net->towers * blocks * BLOCK * net->dense[0][0].out_pad : 0;
    size_t told = (size_t)u->count * (size_t)(net->names[0] + (net->eyes == 2 ? names : 0));
    size_t total = (size_t)net->layers_size * (size_t)(u->chunks + 1) + backs + told;
    if (posix_memalign((void **)&memory, 64, sizeof(float) * total)) return 0;
    u->grads = memory + net->layers_size;
    u->first_back = u->grads + (size_t)net->layers_size * (size_t)u->chunks;
    u->named[0] = (int32_t *)(u->first_back + backs);
    u->named[1] = u->named[0] + (net->eyes == 2 ? (size_t)u->count * (size_t)net->names[0] : 0);
    u->flat = flat;
    net_transpose(net, u->packed, memory);
    u->transposed = memory;
    if (threads > u->chunks) threads = u->chunks;
    for (int t = 1; t < threads && t < MOST_THREADS; t++)
        if (!pthread_create(&started[running], NULL, update_thread, u)) running++;
    update_thread(u);
    for (int t = 0; t < running; t++) pthread_join(started[t], NULL);
    if (names && !u->failed) add_tables(u, threads);
    for (int c = 1; c < u->chunks; c++) add_chunk(net->layers_size, u->grads + (size_t)c * net->layers_size, u->grads);
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
    float rate;      /* learning rate over 1 - b1^t: the first moment's bias */
    float b1, b2, epsilon;
    float bias;      /* 1 - b2^t: the second moment's */
    float scale;     /* of the gradient: less than 1 where it was too long */
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
