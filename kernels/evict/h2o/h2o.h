/* SPDX-License-Identifier: Apache-2.0 */
/* H2O: its parameters, for the reference and the CUDA file. */
#ifndef AR_H2O_H
#define AR_H2O_H

#include <stdbool.h>
#include <stdint.h>

struct h2o {
	int64_t heavy, recent;
	bool norm;
};

/* Of a key under a KV head. */
struct h2o_state {
	float sum;  /* of probabilities, over rows and query heads */
	float rows; /* that saw it */
};

#endif
