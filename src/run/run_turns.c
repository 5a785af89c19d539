/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "src/run/run.h"
#include "traces/algebra/summary.h"

enum ar_status run_put_turns(const struct run_inputs *in, struct store *store, struct ar_err *err)
{
	const struct trace *t = in->trace;
	uint64_t *seen;
	enum ar_status st;

	if (!t->n_session)
		return AR_OK;
	seen = malloc((t->n + 1) * sizeof *seen);
	st = seen ? trace_reuse(t, seen, err) : ar_nomem(err);
	for (size_t i = 0; i < t->n && !st; i++) {
		const struct request *q = &t->req[i];
		const struct row_request_turn row = { .req_no = (int64_t)i,
						      .session_no = q->session,
						      .tree_no = q->session < 0 ?
									 -1 :
									 trace_root(t, q->session),
						      .turn = q->turn,
						      .seen_tokens = (int64_t)seen[i] };

		if (q->session >= 0 && !q->warmup)
			st = store_turn(store, &row, err);
	}
	free(seen);
	return st;
}
