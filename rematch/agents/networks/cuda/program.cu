/* The kernels of one network: acting, advantages, learning. network.h lists the macros that it is compiled with. */
#include "act_float.h"
#include "advantages.h"
#include "finish.h"
#include "select.h"
#include "shuffle.h"
