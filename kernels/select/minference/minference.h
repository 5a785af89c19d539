/* SPDX-License-Identifier: Apache-2.0 */
/* MInference: shared by the reference and the CUDA file. */
#ifndef AR_MINFERENCE_H
#define AR_MINFERENCE_H

#include <stdbool.h>
#include <string.h>

#include "base/both.h"
#include "kernels/select/ashape/ashape.h"
#include "kernels/select/selector.h"
#include "kernels/select/top.h"

#ifdef __cplusplus
extern "C" {
#endif

enum minference_pattern { PATTERN_SLASH, PATTERN_SHAPE, PATTERN_BLOCK };
extern const char *const minference_patterns[]; /* as in files; ends with NULL */

struct minference {
	char *path;		 /* of the patterns */
	int64_t vertical, slash; /* sizes if there is no file */
	double ratio;		 /* share of the sizes to take */
	int64_t last, sink, local;
	int64_t blocks;
	bool force_diag;
};

struct minference_head {
	int32_t pattern;
	int32_t vertical, slash; /* columns and distances to take, forced ones included;
					 * n_init and n_local of an A-shape */
};

enum { MINFERENCE_HEADS = 128 }; /* most heads of a rank on the device */

/* The selector after open(). */
struct minference_self {
	struct minference rule;
	int n_layers, q_heads;
	int max_vertical, max_slash; /* of all heads */
	bool any_block;
	struct minference_head head[]; /* [n_layers][q_heads] */
};

/* One vertical-slash list. */
struct minference_row {
	int32_t *run, *col;
	int n_run, n_col;
};

/* Make the list of the query block that ends before position end from columns v and distances s,
 * both ascending.  A run of tok keys ends at end - d for each distance d.  Runs that overlap are
 * put end to end.  Columns inside a run are dropped. */
static inline void minference_merge(int tok, const int32_t *v, int n_v, const int32_t *s, int n_s,
				    int end, struct minference_row *out)
{
	int at = 0, lo = 0, hi = 0;

	out->n_run = out->n_col = 0;
	for (int i = n_s - 1; i >= 0; i--) {
		int x = end - s[i] > tok ? end - s[i] : tok;

		if (s[i] >= end || (hi && x <= hi))
			continue;
		lo = x > hi + tok || !hi ? x - tok : hi;
		hi = lo + tok;
		for (; at < n_v && v[at] < hi; at++)
			if (v[at] < lo)
				out->col[out->n_col++] = v[at];
		out->run[out->n_run++] = lo;
	}
}

/* The band of the runs of a chunk of `rows` rows.  A single row sees everything. */
AR_BOTH static inline struct attn_band minference_band(const struct minference_head *head, int rows)
{
	struct attn_band band = { 0, 0, 0 };

	if (head->pattern == PATTERN_SHAPE && rows > 1) {
		band.init = head->vertical;
		band.local = head->slash;
	}
	return band;
}

/* A sort key: larger for larger numbers. */
AR_BOTH static inline uint32_t minference_key(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* Share of block j's tokens that lie before position end. */
AR_BOTH static inline float minference_fill(int tok, int end, int j)
{
	int n = end - j * tok;

	return (float)(n < tok ? n : tok) / (float)tok;
}

/* The reference after lastq.h: the lists of head h of request r.  column, slash: its sums. */
enum ar_status minference_lists(const struct attn_batch *b, const struct minference_self *x,
				const struct minference_head *head, int r, int h,
				const float *column, const float *slash,
				const struct column_lists *out, struct ar_err *err);

/* Parts of the reference.  The caller provides the scratch: cell and mean. */

/* Write the places of the n largest of `end` masses, ascending; the first `forced` masses count as
 * the largest.  Returns how many.  cell: [end]. */
int minference_pick(const float *mass, int end, int forced, int n, struct top_cell *cell,
		    int32_t *out);

/* The list of query block i of request r under block_sparse, from the means of blocks of keys.
 * mean: [head_dim], cell: [blocks]. */
void minference_best(const struct attn_batch *b, const struct minference *p, int r, int i, int h,
		     const bf16_t *q, const float *mean_of_keys, float *mean, struct top_cell *cell,
		     struct minference_row *out);

selector_work_fn minference_work_bytes;
selector_fn minference_enqueue;

#ifdef __cplusplus
}
#endif
#endif
