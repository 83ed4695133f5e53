/* The kernels of one network: acting, advantages, learning. network.h lists the macros that it is compiled with. */
#include "advantages.h"
#include "finish.h"
#include "select.h"
