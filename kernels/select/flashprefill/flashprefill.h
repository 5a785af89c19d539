/* SPDX-License-Identifier: Apache-2.0 */
/* FlashPrefill: shared by the reference and the CUDA file. */
#ifndef AR_FLASHPREFILL_H
#define AR_FLASHPREFILL_H

#include <stdbool.h>

#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FLASHPREFILL_OPEN, FLASHPREFILL_DROP };

struct flashprefill {
	double alpha;
	int64_t sink, window, last_n; /* blocks */
	int last_rule;		      /* the rule of the last_n query blocks, FLASHPREFILL_* */
	bool dense_first;
};

selector_work_fn flashprefill_work_bytes;
selector_fn flashprefill_enqueue;

#ifdef __cplusplus
}
#endif
#endif
