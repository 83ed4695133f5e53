/* Acting: rows of many seats, each played by the policy in its slot, sampled and scored in one pass. */

typedef struct {
    const Net *net;
    const float *packed;     /* [slots][net->packed] */
    int slots, rows, greedy;
    const int32_t *slot;     /* [rows] slot of the policy that plays the row; outside 0 .. slots - 1: not computed */
    const uint8_t *acting;   /* [rows] or NULL: all */
    const float *obs;        /* [rows][net->obs] */
    const float *privileged; /* [rows][net->privileged], or NULL: a centralized critic gives no values */
    const uint8_t *mask;     /* [rows][actions] or NULL */
    const uint32_t *number;  /* [rows] (key, step, number) determine the random numbers of a row */
    uint64_t key;
    uint32_t step_low, step_high;
    float *action;           /* [rows][actions], continuous */
    int32_t *choice;         /* [rows], discrete */
    float *logp;             /* [rows] */
    float *value;            /* [rows], or NULL: no values are computed */
    float *heads;            /* [rows][actions] means or logits, or NULL */
} Acting;

/* Box and Muller (1958): two uniform words to two standard normals. */
static inline void normals(uint32_t a, uint32_t b, float *first, float *second) {
    float radius = sqrtf(-2.0f * logf(((float)(a >> 8) + 1.0f) * (1.0f / 16777216.0f)));
    float angle = 6.28318531f * rm_unit(b);
    *first = radius * cosf(angle);
    *second = radius * sinf(angle);
}

/* Two normal numbers for each row of a block, from draw `d`; the loop over the words vectorises. */
static void draw_normals(const Acting *a, int d, const int *order, int rows, float *first, float *second) {
    uint32_t number[BLOCK] = {0}, one[BLOCK], other[BLOCK];
    for (int i = 0; i < rows; i++) number[i] = a->number[order[i]];
    for (int i = 0; i < BLOCK; i++) {
        rm_quad q = rm_philox(a->key, number[i], a->step_low, RM_STREAM_ACT | (uint32_t)d << 8, a->step_high);
        one[i] = q.w[0];
        other[i] = q.w[1];
    }
    for (int i = 0; i < rows; i++) normals(one[i], other[i], first + i, second + i);
}

/* Sample actions of the rows order[0 .. rows - 1], at most BLOCK, from their means, which are `stride` floats apart. */
static void act_gaussian(const Acting *a, const float *log_std, const float *std, const float *mean, long stride, const int *order, int rows) {
    int n = a->net->actions;
    float z[2][BLOCK] = {{0}}, logp[BLOCK] = {0};
    for (int d = 0; d < n; d++) {
        const float *e = z[d & 1];
        if (!(d & 1) && !a->greedy) draw_normals(a, d, order, rows, z[0], z[1]);
        for (int i = 0; i < rows; i++) a->action[(size_t)order[i] * n + d] = mean[i * stride + d] + e[i] * std[d];
        for (int i = 0; i < BLOCK; i += LANES) {
            vec part = *(const vec *)(e + i), half = -0.5f * part * part;
            IN_REGISTER(half);
            *(vec *)(logp + i) += half - log_std[d] - HALF_LOG_2PI;
        }
    }
    for (int i = 0; i < rows; i++) a->logp[order[i]] = logp[i];
}

static void act_choice(const Acting *a, const float *logits, int row, float *scratch) {
    int n = a->net->actions, choice_index = -1;
    log_softmax(n, logits, a->mask ? a->mask + (size_t)row * n : NULL, scratch);
    if (a->greedy) {
        for (int c = 0; c < n; c++)
            if (scratch[c] > -INFINITY && (choice_index < 0 || scratch[c] > scratch[choice_index])) choice_index = c;
    } else {
        rm_quad q = rm_philox(a->key, a->number[row], a->step_low, RM_STREAM_ACT, a->step_high);
        float remaining = rm_unit(q.w[0]);
        for (int c = 0; c < n; c++) { /* inverse of the cumulative sum; the last legal action takes the rounding error */
            if (!(scratch[c] > -INFINITY)) continue;
            choice_index = c;
            remaining -= expf(scratch[c]);
            if (remaining < 0) break;
        }
    }
    if (choice_index < 0) choice_index = 0; /* no legal action or not finite: logp is -inf or NaN */
    a->choice[row] = choice_index;
    a->logp[row] = scratch[choice_index];
}

/* Returns 0 if memory allocation fails. */
static int act_rows(const Acting *a) {
    const Net *net = a->net;
    Block block;
    long stride = net->dense[0][net->layers].out_pad;
    int n = net->actions, failed = 1, has_value = a->value && (net->input_sets == 1 || a->privileged);
    int *order = malloc(sizeof(int) * (size_t)(a->rows + a->slots + 1));
    float *scratch = malloc(sizeof(float) * (size_t)n);
    if (order && scratch && block_make(net, &block, a->rows < BLOCK ? fours(a->rows) : BLOCK, 0)) {
        int *count = order + a->rows; /* counting sort of the rows by slot: a block has one policy */
        memset(count, 0, sizeof(int) * (size_t)(a->slots + 1));
        for (int r = 0; r < a->rows; r++)
            if (a->slot[r] >= 0 && a->slot[r] < a->slots && (!a->acting || a->acting[r])) count[a->slot[r] + 1]++;
        for (int s = 0; s < a->slots; s++) count[s + 1] += count[s];
        for (int r = 0; r < a->rows; r++)
            if (a->slot[r] >= 0 && a->slot[r] < a->slots && (!a->acting || a->acting[r])) order[count[a->slot[r]]++] = r;
        for (int s = 0, at = 0; s < a->slots; s++) { /* count[s] is now the end of slot s */
            const float *packed = a->packed + (size_t)s * net->packed;
            if (!net->discrete)
                for (int d = 0; d < n; d++) scratch[d] = expf(packed[net->log_std + d]);
            for (; at < count[s]; at += BLOCK) {
                int block_rows = count[s] - at < BLOCK ? count[s] - at : BLOCK;
                for (int i = 0; i < block_rows; i++) {
                    size_t row = (size_t)order[at + i];
                    gather(net, &block, i, a->obs + row * net->obs, a->privileged ? a->privileged + row * net->privileged : NULL);
                }
                forward(net, packed, &block, block_rows, has_value ? net->towers : 1);
                if (!net->discrete) act_gaussian(a, packed + net->log_std, scratch, policy_out(net, &block, 0), stride, order + at, block_rows);
                for (int i = 0; i < block_rows; i++) {
                    int row = order[at + i];
                    const float *head = policy_out(net, &block, i);
                    if (net->discrete) act_choice(a, head, row, scratch);
                    if (has_value) a->value[row] = value_out(net, &block, i);
                    if (a->heads) memcpy(a->heads + (size_t)row * n, head, sizeof(float) * (size_t)n);
                }
                if (block_rows < BLOCK) { at = count[s]; break; }
            }
        }
        free(block.memory);
        failed = 0;
    }
    free(order);
    free(scratch);
    return !failed;
}
