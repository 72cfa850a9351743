/* The per-particle generator of src/epf/numerics/_keys.py through TestU01 (L'Ecuyer and Simard 2007).
 *
 *   gcc -O3 testu01.c -o testu01 -ltestu01 -ltestu01probdist -ltestu01mylib -lm
 *   ./testu01 LAYOUT BATTERY SEED      LAYOUT 1..5 as below, BATTERY s (SmallCrush) or c (Crush)
 *
 * Layouts, each a way in which a filter consumes the words:
 *   1  1000 lanes, one word each, then the next step      4  2^20 lanes, one word each
 *   2  1000 lanes, four words each                        5  layout 1 with the bits reversed
 *   3  steps fastest: one lane over 65536 steps
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <testu01/bbattery.h>
#include <testu01/unif01.h>

typedef uint32_t u32;

static u32 rotate(u32 x, int r) { return (x << r) | (x >> (32 - r)); }

/* Threefry-2x32-20 of (seed, 0) and (step, 0): the key of a step. */
static void step_key(u32 seed, u32 step, u32 *k0, u32 *k1) {
    static const int turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    u32 keys[3] = {seed, 0, 0x1BD11BDAu ^ seed}, x0 = step + seed, x1 = 0;
    for (int round = 0; round < 20; round++) {
        x0 += x1;
        x1 = rotate(x1, turns[round % 8]) ^ x0;
        if (round % 4 == 3) {
            int j = round / 4 + 1;
            x0 += keys[j % 3];
            x1 += keys[(j + 1) % 3] + (u32)j;
        }
    }
    *k0 = x0;
    *k1 = x1;
}

static u32 mix(u32 h) {
    h = (h ^ (h >> 16)) * 0x21F0AAADu;
    h = (h ^ (h >> 15)) * 0x735A2D97u;
    return h ^ (h >> 15);
}

static u32 word(u32 k0, u32 k1, u32 lane, u32 number) { return mix(mix(lane + k0) ^ (k1 + number * 0x9E3779B9u)); }

static u32 seed, step, lane, number, k0, k1, lanes = 1000, words = 1;

static unsigned int lanes_fastest(void) {
    u32 out = word(k0, k1, lane, number);
    if (++number == words) {
        number = 0;
        if (++lane == lanes) {
            lane = 0;
            step_key(seed, ++step, &k0, &k1);
        }
    }
    return out;
}

static unsigned int steps_fastest(void) {
    step_key(seed, step, &k0, &k1);
    u32 out = word(k0, k1, lane, 0);
    if (++step == 65536) {
        step = 0;
        if (++lane == 16) {
            lane = 0;
            seed++;
        }
    }
    return out;
}

static unsigned int reversed(void) {
    u32 x = lanes_fastest(), out = 0;
    for (int i = 0; i < 32; i++, x >>= 1) out = (out << 1) | (x & 1);
    return out;
}

int main(int count, char **argument) {
    if (count != 4) return fputs("usage: testu01 LAYOUT(1..5) BATTERY(s|c) SEED\n", stderr), 2;
    int layout = atoi(argument[1]);
    seed = (u32)strtoul(argument[3], NULL, 0);
    if (layout == 2) words = 4;
    if (layout == 4) lanes = 1u << 20;
    step_key(seed, 0, &k0, &k1);
    unsigned int (*next)(void) = layout == 3 ? steps_fastest : layout == 5 ? reversed : lanes_fastest;
    unif01_Gen *generator = unif01_CreateExternGenBits("lanes", next);
    if (argument[2][0] == 'c') bbattery_Crush(generator);
    else bbattery_SmallCrush(generator);
    return 0;
}
