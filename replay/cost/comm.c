/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm.h"

#include "base/number.h"

enum { BF16 = 2 };

/* Partial sums that a layer leaves. */
static int sums(const struct layer_spec *l)
{
	return (l->mixer != MIX_NONE) + (l->ffn > 0);
}

void comm_bind(struct comm *c, const struct model *m, const int *run, int n)
{
	c->ranks = m->tp;
	c->hidden = m->hidden;
	c->vocab = (int64_t)m->vocab * m->tp;
	c->n_reduce = c->n_run_reduce = 1; /* of the embedding */
	for (int i = 0; i < m->n_layers; i++)
		c->n_reduce += sums(&m->layer[i]);
	for (int i = 0; i < n && run; i++)
		c->n_run_reduce += sums(&m->layer[run[i]]);
	if (!run)
		c->n_run_reduce = c->n_reduce;
}

int64_t comm_ns(const struct comm *c, enum comm_op op, int64_t bytes, bool graph)
{
	const int hops = (op == COMM_REDUCE ? 2 : 1) * (c->ranks - 1);

	return c->table ? comm_table_ns(c->table, op, graph, bytes) :
			  comm_ring_ns(&c->ring, c->gbps, hops, (double)bytes / c->ranks);
}

void comm_add(const struct comm *c, const struct batch *b, struct iter_cost *cost,
	      int64_t sent[COMM_KERNELS])
{
	const int64_t row = BF16 * c->hidden, logits = BF16 * c->vocab;
	const bool graph = !b->prefill_tok;
	int64_t rows = 0, emit = 0, reduce, gather = 0;

	for (size_t i = 0; i < b->n; i++) {
		rows += b->entry[i].n_tok;
		emit += b->entry[i].n_emit;
	}
	reduce = comm_ns(c, COMM_REDUCE, rows * row, graph);
	if (emit)
		gather = comm_ns(c, COMM_GATHER, emit * logits, graph);
	if (c->table)
		sent[comm_table_kernel(c->table, COMM_REDUCE, graph, rows * row)] += c->n_reduce;
	if (c->table && emit)
		sent[comm_table_kernel(c->table, COMM_GATHER, graph, emit * logits)]++;
	cost->cost_ns = num_add(cost->cost_ns, num_add(num_mul(c->n_reduce, reduce), gather));
	cost->phase_ns[PHASE_COMM] = num_add(num_mul(c->n_run_reduce, reduce), gather);
	cost->phase_kernels[PHASE_COMM] = (int32_t)c->n_run_reduce + !!emit;
}
