/* The kernel step_games of a world, run on the CPU. The macro RULES and the include folders name the world. */
#include "cuda_on_cpu.h"

#define __CUDACC__ /* what is compiled for the GPU only is tested too */
#define __forceinline__ inline
namespace world { /* its structs have the names of the emulation */
#include "kernels.cu"
}

extern "C" void run_step_games(int blocks, int worlds, int threads, const void *steps, int t, int count, const void *settings) {
    const auto body = [=] { world::step_games((const world::StepArrays *)steps, t, count, (const world::StepSettings *)settings); };
#ifdef STEP_WAITS
    launch({blocks, worlds}, threads, world::STEP_BYTES, body);
#else
    launch_independent({blocks, worlds}, threads, body);
#endif
}

#ifdef REMATCH_PURSUIT_SENSOR_KERNELS_H
#define RUN_AFTER_STEP(name) \
    extern "C" void run_##name(int x, int y, int threads, const void *steps, int t, int count, const void *settings) { \
        launch_independent({x, y}, threads, [=] { \
            world::name((const world::StepArrays *)steps, t, count, (const world::StepSettings *)settings); \
        }); \
    }
RUN_AFTER_STEP(sense)
RUN_AFTER_STEP(show_history)
#endif

extern "C" void run_begin_rollout(int blocks, int worlds, int threads, const void *rules) {
    launch_independent({blocks, worlds}, threads, [=] { world::begin_rollout((const world::SlotRule *)rules); });
}

extern "C" void run_tally(int blocks, int worlds, int threads, const void *arguments) {
    launch_independent({blocks, worlds}, threads, [=] { world::tally((const world::TallyArguments *)arguments); });
}
