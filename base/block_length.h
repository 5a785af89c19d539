/* SPDX-License-Identifier: Apache-2.0 */
/* How long blocks of a bootstrap have to be, so that they keep how values depend on the values
 * before them.  Politis and White, Automatic Block-Length Selection for the Dependent Bootstrap
 * (2004), with the correction of Patton, Politis and White (2009), for blocks of a fixed length
 * that wrap around. */
#ifndef AR_BLOCK_LENGTH_H
#define AR_BLOCK_LENGTH_H

#include <stddef.h>

/* Values of a block for x[0..n), in order of time: at least 1, which independent values get, and at
 * most 3 sqrt(n) or n / 3.  x is not finite: 1. */
size_t block_length(const double *x, size_t n);

#endif
