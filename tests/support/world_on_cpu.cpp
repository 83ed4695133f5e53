/* The kernel step_games of a world, run on the CPU. The macro RULES and the include folders name the world. */
#include "cuda_on_cpu.h"

#define __CUDACC__ /* what is compiled for the GPU only is tested too */
#define __forceinline__ inline
namespace world { /* its structs have the names of the emulation */
#include "kernels.cu"
}

extern "C" void run_step_games(int blocks, int worlds, int threads, const void *steps, int t, int count, const void *settings) {
    launch_independent({blocks, worlds}, threads, [=] {
        world::step_games((const world::StepArrays *)steps, t, count, (const world::StepSettings *)settings);
    });
}

extern "C" void run_begin_rollout(int blocks, int worlds, int threads, const void *rules) {
    launch_independent({blocks, worlds}, threads, [=] { world::begin_rollout((const world::SlotRule *)rules); });
}

extern "C" void run_tally(int blocks, int worlds, int threads, const void *arguments) {
    launch_independent({blocks, worlds}, threads, [=] { world::tally((const world::TallyArguments *)arguments); });
}
