/* The kernels of agents/networks/cuda for tests without a GPU: run_NAME(blocks, learners, threads, arguments of the kernel). */
#include "cuda_on_cpu.h"
#include "program.cu"

extern "C" void run_act(int x, int y, int threads, const ActArguments *roles, int t, int only_values) {
    launch({x, y}, threads, sizeof(ActMemory), [=] { act(roles, t, only_values); });
}
extern "C" void run_act_float(int x, int y, int threads, const FloatArguments *seats) {
    launch({x, y}, threads, sizeof(FloatMemory), [=] { act_float(seats); });
}
extern "C" void run_pack(int x, int y, int threads, const float *weights, Weights *packed) {
    launch_independent({x, y}, threads, [=] { pack(weights, packed); });
}
extern "C" void run_advantages(int x, int y, int threads, const AdvantageArguments *arguments) {
    launch_independent({x, y}, threads, [=] { advantages(arguments); });
}
extern "C" void run_shuffle(int x, int y, int threads, const UpdateArguments *learners) {
    launch_independent({x, y}, threads, [=] { shuffle(learners); });
}
extern "C" void run_update(int x, int y, int threads, const UpdateArguments *learners) {
    launch({x, y}, threads, sizeof(UpdateMemory), [=] { update(learners); });
}
#define RUN_SELECT(name) \
    extern "C" void run_##name(int x, int y, int threads, const UpdateArguments *learners) { \
        launch({x, y}, threads, sizeof(SelectMemory), [=] { name(learners); }); \
    }
RUN_SELECT(count_rows)
RUN_SELECT(scan_rows)
RUN_SELECT(list_rows_to_learn)
RUN_SELECT(scale_rows)
RUN_SELECT(finish)

extern "C" int shared_bytes(int kind) { return (int)(kind == 0 ? sizeof(ActMemory) : kind == 1 ? sizeof(UpdateMemory) : kind == 2 ? sizeof(SelectMemory) : sizeof(FloatMemory)); }
extern "C" int weight_bytes() { return (int)sizeof(Weights); }
