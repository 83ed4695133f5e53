/* The kernels of evaluation/cuda/matches.cu, run on the CPU. */
#include "cuda_on_cpu.h"
#include "matches.cu"

extern "C" void run_record_step(int x, int y, int threads, const MatchArguments *a) {
    launch_independent({x, y}, threads, [=] { record_step(a); });
}
extern "C" void run_count_step(int x, int y, int threads, const MatchArguments *a) {
    launch_independent({x, y}, threads, [=] { count_step(a); });
}
