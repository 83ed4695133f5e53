/* Sine, cosine, arc tangent and logarithm from + - * / alone, so that every processor gives the same bits (libm and
 * the GPU's own functions differ in the last place). Compile with -ffp-contract=off. Errors stay below
 * 3e-7 rad. Coefficients: minimax fits over the reduced range, rounded to float.
 * Plain C99 that also compiles as CUDA C. (Not called math.h: that would hide the system's <math.h>.) */
#ifndef REMATCH_TRIG_H
#define REMATCH_TRIG_H

#include "random.h" /* RM_FN and the integer types */
#ifndef __CUDACC_RTC__
#include <math.h> /* sqrtf only: IEEE 754 requires correct rounding */
#endif

#define RM_PI 3.14159274f
#define RM_TWO_PI 6.28318548f /* exactly 2 * RM_PI */
#define RM_HALF_PI 1.57079637f

RM_FN float rm_min(float a, float b) { return a < b ? a : b; }
RM_FN float rm_max(float a, float b) { return a > b ? a : b; }
RM_FN float rm_clip(float a, float low, float high) { return rm_min(rm_max(a, low), high); }
RM_FN float rm_abs(float a) { return a < 0.0f ? -a : a; }
RM_FN float rm_hypot(float x, float y) { return sqrtf(x * x + y * y); }

/* Reduce an angle in (-3 pi, 3 pi) to [-pi, pi). */
RM_FN float rm_wrap(float angle) {
    float down = angle >= RM_PI ? RM_TWO_PI : 0.0f;
    float up = angle < -RM_PI ? RM_TWO_PI : 0.0f;
    return angle - down + up;
}

/* Sine and cosine for |x| up to about 1000: reduce to the nearest multiple of pi/2 (Cody and Waite's
 * two-part pi/2), evaluate both polynomials, then pick and sign them by quadrant. */
RM_FN void rm_sincos(float x, float *sine, float *cosine) {
    int32_t quadrant = (int32_t)(x * 0.636619747f + (x < 0.0f ? -0.5f : 0.5f));
    float k = (float)quadrant;
    float r = (x - k * 1.5703125f) - k * 4.83826792e-4f;
    float z = r * r;
    float s = r + r * z * (-0.166666508f + z * (8.33197311e-3f + z * -1.94949491e-4f));
    float c = 1.0f - 0.5f * z + z * z * (4.16666456e-2f + z * (-1.38873619e-3f + z * 2.44377279e-5f));
    float a = (quadrant & 1) ? c : s;
    float b = (quadrant & 1) ? s : c;
    *sine = a * (float)(1 - (quadrant & 2)); /* a sign as a factor: no branch, so loops vectorise */
    *cosine = b * (float)(1 - ((quadrant + 1) & 2));
}

/* The angle of (x, y) in [-pi, pi]; 0 for the origin. */
RM_FN float rm_atan2(float y, float x) {
    float ax = rm_abs(x), ay = rm_abs(y);
    float large = rm_max(ax, ay), small = rm_min(ax, ay);
    float t = small / (large > 0.0f ? large : 1.0f);
    float z = t * t;
    float p = 2.30399650e-2f + z * -4.35535703e-3f;
    p = 9.79421809e-2f + z * (-5.77733517e-2f + z * p);
    p = 0.199627027f + z * (-0.139765754f + z * p);
    float angle = t + t * z * (-0.333316594f + z * p);
    angle = ay > ax ? RM_HALF_PI - angle : angle;
    angle = x < 0.0f ? RM_PI - angle : angle;
    return y < 0.0f ? -angle : angle;
}

/* The natural logarithm of a positive normal number: mantissa in [sqrt 1/2, sqrt 2), then the series of
 * log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + ...), whose first omitted term is below 3e-9. */
RM_FN float rm_log(float x) {
    union { float number; uint32_t bits; } word = {x};
    int32_t exponent = (int32_t)((word.bits >> 23) & 255u) - 127;
    word.bits = (word.bits & 0x007FFFFFu) | 0x3F800000u;
    int32_t large = word.number > 1.41421354f;
    float f = (large ? word.number * 0.5f : word.number) - 1.0f;
    float s = f / (2.0f + f);
    float z = s * s;
    float series = 1.0f + z * (0.333333343f + z * (0.2f + z * (0.142857149f + z * 0.111111112f)));
    return (float)(exponent + large) * 0.693147182f + 2.0f * s * series;
}

#endif
