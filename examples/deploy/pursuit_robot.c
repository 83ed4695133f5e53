/* Drives a robot with a pursuit policy in C99: no allocation, no library but the C library's mathematics.
 *
 *   rematch export quick-1 --out agent --c-header
 *   gcc -std=c99 -O2 -I. examples/deploy/pursuit_robot.c -lm && ./a.out
 *
 * Another policy: -DPOLICY='"agent-evader.h"' -DNAME=agent_evader
 */
#include <stdio.h>
#ifndef POLICY
#define POLICY "agent-pursuer.h"
#define NAME agent_pursuer
#endif
#include POLICY

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define ACT JOIN(NAME, _act)
#define INPUT_NAME JOIN(NAME, _input_name)
#define OUTPUT_NAME JOIN(NAME, _output_name)
#define OUTPUT_UNIT JOIN(NAME, _output_unit)

enum { INPUTS = sizeof INPUT_NAME / sizeof *INPUT_NAME, OUTPUTS = sizeof OUTPUT_NAME / sizeof *OUTPUT_NAME };

int main(void) {
    float observation[INPUTS] = {0}, output[OUTPUTS];
    observation[0] = -3.0f; /* state.own_x, in metres: the header lists all inputs */
    observation[1] = 1.0f;  /* state.own_y */
    observation[3] = 0.5f;  /* state.own_speed, in m/s */
    if (ACT(observation, output) != 0) return 1;
    for (int i = 0; i < OUTPUTS; i++) printf("%s = %.3f %s\n", OUTPUT_NAME[i], output[i], OUTPUT_UNIT[i]);
    return 0;
}
