/* The kernels of agents/networks/few_rows/dense.cu for tests without a GPU. */
#include "cuda_on_cpu.h"
#define LANES 1
#include "dense.cu"

extern "C" void run_dense_layer(int x, int y, int threads, const Layer *a, int t, int only_values) {
    launch_independent({x, y}, threads, [=] { dense_layer(a, t, only_values); });
}
extern "C" void run_gaussian_heads(int x, int y, int threads, const Heads *a, int t, int only_values) {
    launch_independent({x, y}, threads, [=] { gaussian_heads(a, t, only_values); });
}
