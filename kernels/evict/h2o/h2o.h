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

#endif
