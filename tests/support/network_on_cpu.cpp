/* The kernels of agents/networks/cuda for tests without a GPU. */
#include "cuda_on_cpu.h"
#include "program.cu"

extern "C" void run_act(const ActArguments *arguments, int blocks, int t, const long long *first_step, int only_values) {
    launch({blocks, 1}, ACT_THREADS, sizeof(ActMemory), [=] { act(arguments, t, first_step, only_values); });
}
extern "C" void run_update(const UpdateArguments *arguments, int blocks) {
    launch_independent({blocks, 1}, 64, [=] { shuffle(arguments); });
    launch({blocks, 1}, THREADS, sizeof(UpdateMemory), [=] { update(arguments); });
}
extern "C" void run_advantages(const AdvantageArguments *arguments, int blocks) {
    launch({blocks, 1}, 64, 16, [=] { advantages(arguments); });
}
extern "C" int shared_bytes(int learning) { return learning ? (int)sizeof(UpdateMemory) : (int)sizeof(ActMemory); }
extern "C" void run_pack(const float *weights, Weights *packed, int networks) {
    launch_independent({1, networks}, 64, [=] { pack(weights, packed); });
}
extern "C" int weight_bytes() { return (int)sizeof(Weights); }
