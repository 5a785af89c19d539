/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/stages.h"

#include <inttypes.h>
#include <string.h>

#include "base/number.h"

/* vLLM 0.33.0, distributed/utils.py, get_pp_indices(). */
void stages_split(struct stages *s, int layers, int n)
{
	s->n = n;
	s->n_layers = layers;
	for (int i = 0; i < n; i++)
		s->layers[i] = layers / n;
	for (int i = 0; i < layers % n; i++)
		s->layers[n - 2 - i]++;
}

enum ar_status stages_read(struct stages *s, const char *list, int layers, int n,
			   struct ar_err *err)
{
	const char *p = list;
	bool good = true, more = true;
	uint64_t x;
	int sum = 0;

	s->n = 0;
	s->n_layers = layers;
	while (good && more) {
		const size_t len = strcspn(p, ",");

		good = s->n < n && num_u64(p, len, &x) && x && x <= (uint64_t)layers;
		if (good)
			sum += s->layers[s->n++] = (int)x;
		more = p[len];
		p += len + 1;
	}
	if (!good || s->n != n || sum != layers)
		return ar_fail(err, AR_USAGE,
			       "pp-layers '%s': want the layers of each of %d stages, %d in all, "
			       "such as 11,11,10",
			       list, n, layers);
	return AR_OK;
}

/* Each rank sends its part, and those of the next stage gather. */
static int64_t send_ns(const struct stages *s, const struct batch *b)
{
	const int64_t part = batch_rows(b) * s->row_bytes;
	const bool graph = !b->prefill_tok;
	int64_t ns = 0;

	if (s->comm)
		ns = comm_ns(s->comm, COMM_SEND, part, graph);
	if (s->comm && s->comm->ranks > 1)
		ns = num_add(ns,
			     comm_ns(s->comm, COMM_GATHER, num_mul(part, s->comm->ranks), graph));
	return ns;
}

int64_t stages_run(const struct stages *s, const struct batch *b, int64_t at_ns, int64_t cost_ns,
		   int64_t head_ns, int64_t *end)
{
	const int64_t body = cost_ns - head_ns, send = send_ns(s, b);
	int64_t first = 0, at = at_ns, done = 0, layers = 0;

	for (int i = 0; i < s->n; i++) {
		const int64_t start = at > end[i] ? at : end[i], had = done;

		layers += s->layers[i];
		done = (int64_t)((double)body * (double)layers / s->n_layers);
		if (i == s->n - 1)
			done = cost_ns; /* what remains, with the head */
		end[i] = num_add(start, done - had);
		at = num_add(end[i], send);
		first = i ? first : start;
	}
	return first;
}
