/* The kernels of agents/learners/gradient_step/minibatch.cu for tests without a GPU. */
#include "cuda_on_cpu.h"
#include "minibatch.cu"

extern "C" void run_advantages(int x, int y, int threads, const AdvantageArguments *a) {
    launch_independent({x, y}, threads, [=] { advantages(a); });
}
extern "C" void run_gather_rows(int x, int y, int threads, const RowArguments *a) {
    launch_independent({x, y}, threads, [=] { gather_rows(a); });
}
extern "C" void run_loss(int x, int y, int threads, const LossArguments *a, const float *heads, const float *values) {
    launch_independent({x, y}, threads, [=] { loss(a, heads, values); });
}
extern "C" void run_decide(int x, int y, int threads, const StepArguments *a, const double *means, const float *norm) {
    launch_independent({x, y}, threads, [=] { decide(a, means, norm); });
}
extern "C" void run_adam(int x, int y, int threads, const StepArguments *a, const float *gradient) {
    launch_independent({x, y}, threads, [=] { adam(a, gradient); });
}
