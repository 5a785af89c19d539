/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that exist on the host and on the device, for tests of kernels against references.  Any
 * failure bails out. */
#ifndef AR_TESTS_GPU_BOTH_H
#define AR_TESTS_GPU_BOTH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"

struct both {
	void *host, *dev;
	size_t bytes;
};

struct both both_new(size_t bytes);		  /* zeros here, NaN of bf16 on the device */
struct both both_normal(size_t n, struct rng *r); /* n bf16, the same on both sides */
void both_free(struct both *b);			  /* the host's side; gpu_free_all() the other */
void upload(const struct both *b);
void *download(const struct both *b); /* copy of device memory; the caller frees it */

bool equal(const struct both *b);
/* bf16: within one unit of the last place and atol, and NaN nowhere.  what: for the message. */
bool close_by(const struct both *b, float atol, const char *what);
bool close_to(const struct both *b);

int below(struct rng *r, int n);

#endif
