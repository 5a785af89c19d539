/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of many values, in references. */
#ifndef AR_TOP_H
#define AR_TOP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A value and its place.  Any float and any 32-bit integer is a key as it is. */
struct top_cell {
	double key;
	int64_t at;
};

/* Sort n cells, none if n < 0: the largest keys first, of equal ones the lowest place. */
void top_sort(struct top_cell *cell, int64_t n);

/* The same for the values key[0..n), written to cell[0..n) with their places. */
void top_of(struct top_cell *cell, const float *key, int n);

#ifdef __cplusplus
}
#endif
#endif
