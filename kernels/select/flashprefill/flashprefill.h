/* SPDX-License-Identifier: Apache-2.0 */
/* FlashPrefill: what the reference and the CUDA file share. */
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
	int last_rule;		      /* what the last_n query blocks keep, FLASHPREFILL_* */
	bool dense_first;
};

selector_work_fn flashprefill_work_bytes;
selector_fn flashprefill_enqueue;

#ifdef __cplusplus
}
#endif
#endif
