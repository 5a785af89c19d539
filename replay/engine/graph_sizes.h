/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of rows for which an engine captures CUDA graphs.  A batch of fewer rows is padded to
 * the next number. */
#ifndef AR_GRAPH_SIZES_H
#define AR_GRAPH_SIZES_H

#include <stdint.h>

#include "base/status.h"

struct graph_sizes {
	int *size; /* [n] ascending */
	int n;
};

/* list: ascending sizes, such as "1,2,4,8".  Sizes above max_tok, the token budget, are left out.
 * NULL: the default of vLLM 0.24 (vllm/config/vllm.py, _set_cudagraph_sizes): 1, 2, 4, multiples of
 * 8 up to 256, and multiples of 16 above.  The largest is at most `most` and max_tok.  most 0: 512
 * and 2 max_seqs, as in vLLM.  If max_tok is the least, it is a size itself.  AR_USAGE: the list is
 * malformed. */
enum ar_status graph_sizes_open(struct graph_sizes *s, const char *list, int64_t max_seqs,
				int64_t most, int64_t max_tok, struct ar_err *err);
void graph_sizes_release(struct graph_sizes *s); /* zeroed is fine */

/* The smallest size that is at least n; 0: there is none. */
int graph_sizes_fit(const struct graph_sizes *s, int64_t n);

#endif
