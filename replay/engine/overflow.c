/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/overflow.h"

#include <math.h>

#include "base/bf16.h"

/* The request of a row. */
static uint32_t request_of(const struct batch *b, const struct rows *r, int row)
{
	uint32_t req = 0;

	for (int kind = 0; kind < ROW_KINDS; kind++) {
		const int32_t *row0 = r->part[kind].rows.row0;
		int at = row - rows_before(r, (enum row_kind)kind), n = 0;

		for (size_t i = 0; i < b->n && rows_count(r, (enum row_kind)kind); i++) {
			if ((int)b->entry[i].kind != kind)
				continue;
			if (at >= row0[n] && at < row0[n + 1])
				req = b->entry[i].req;
			n++;
		}
	}
	return req;
}

enum ar_status overflow_check(const struct backend_env *env, const struct batch *b,
			      const struct rows *r, int i, const bf16_t *x, struct ar_err *err)
{
	const int hidden = env->model->hidden;

	for (int64_t k = 0; k < (int64_t)r->n_row * hidden; k++) {
		uint32_t req;

		if (isfinite(bf16_to_f32(x[k])))
			continue;
		req = request_of(b, r, (int)(k / hidden));
		return i ? ar_fail(err, AR_DATA,
				   "request %u: layer %d is the first whose output is not finite; "
				   "run --method dense to tell whether the method is why",
				   req, env->run_layer[i - 1]) :
			   ar_fail(err, AR_DATA,
				   "request %u: the embedding of a token is not finite; its "
				   "weights are out of range",
				   req);
	}
	return AR_OK;
}
