/* The kernels of worlds/beasty/search.cu, run on the CPU. */
#include "cuda_on_cpu.h"

#define __CUDACC__
#define __forceinline__ inline
namespace world {
#include "search.cu"
}

#define RUN(name, Arguments) \
    extern "C" void run_##name(int x, int y, int threads, const void *arguments) { \
        launch_independent({x, y}, threads, [=] { world::name((const world::Arguments *)arguments); }); \
    }
RUN(search_candidates, SearchArrays)
RUN(search_playouts, SearchArrays)
RUN(search_means, SearchArrays)
RUN(search_leaves, SearchArrays)
RUN(search_turns, SearchArrays)
RUN(search_results, SearchArrays)
RUN(observe_movers, ObserveArrays)
