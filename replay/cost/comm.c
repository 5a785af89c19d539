/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm.h"

#include <math.h>

#include "base/number.h"

enum { BF16 = 2 };

/* Partial sums that a layer leaves. */
static int sums(const struct layer_spec *l)
{
	return (l->mixer != MIX_NONE) + (l->ffn > 0);
}

void comm_bind(struct comm *c, const struct model *m, const int *run, int n)
{
	if (c->experts.experts) {
		c->ranks = c->experts.ranks;
		comm_experts_bind(&c->experts, m, run, n);
		return;
	}
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
	const int others = c->ranks - 1, hops = op == COMM_REDUCE ? 2 * others :
						op == COMM_SEND	  ? 1 :
								    others;
	const double part = op == COMM_SEND ? (double)bytes : (double)bytes / c->ranks;

	return c->table ? comm_table_ns(c->table, op, graph, bytes) :
			  comm_ring_ns(&c->ring, c->gbps, hops, part);
}

/* A message, and how often it is sent: in all layers, and in executed ones. */
struct message {
	enum comm_op op;
	int64_t bytes, n, n_run;
};

static void add(const struct comm *c, const struct message *m, bool graph, struct iter_cost *cost,
		int64_t sent[COMM_KERNELS])
{
	const int64_t ns = comm_ns(c, m->op, m->bytes, graph);

	cost->cost_ns = num_add(cost->cost_ns, num_mul(m->n, ns));
	cost->phase_ns[PHASE_COMM] = num_add(cost->phase_ns[PHASE_COMM], num_mul(m->n_run, ns));
	cost->phase_kernels[PHASE_COMM] += (int32_t)m->n_run;
	if (c->table)
		sent[comm_table_kernel(c->table, m->op, graph, m->bytes)] += m->n;
}

static int64_t whole_bytes(double x)
{
	return x < 0x1p63 ? llround(x) : INT64_MAX;
}

static void add_experts(const struct comm *c, const struct batch *b, bool graph,
			struct iter_cost *cost, int64_t sent[COMM_KERNELS])
{
	const struct comm_experts *x = &c->experts;
	const struct batch_step *s = &b->step;
	const int64_t own = batch_rows(b), rows = s->rows ? s->rows : own;
	const int64_t largest = s->rows ? s->largest : own;
	const struct experts_most most = experts_most(x->experts, s->no, -1, rows);
	const struct expert_bytes bytes = comm_experts_bytes(x, rows, largest, &most);
	const struct message m[2] = { { comm_experts_op(x->way, false), whole_bytes(bytes.dispatch),
					x->n_layer, x->n_run_layer },
				      { comm_experts_op(x->way, true), whole_bytes(bytes.combine),
					x->n_layer, x->n_run_layer } };

	for (int i = 0; i < 2; i++)
		add(c, &m[i], graph, cost, sent);
}

void comm_add(const struct comm *c, const struct batch *b, struct iter_cost *cost,
	      int64_t sent[COMM_KERNELS])
{
	const bool graph = !b->prefill_tok;
	struct message reduce = { COMM_REDUCE, batch_rows(b) * BF16 * c->hidden, c->n_reduce,
				  c->n_run_reduce };
	struct message gather = { COMM_GATHER, 0, 1, 1 };

	if (c->experts.experts) {
		add_experts(c, b, graph, cost, sent);
		return;
	}
	for (size_t i = 0; i < b->n; i++)
		gather.bytes += b->entry[i].n_emit * BF16 * c->vocab;
	add(c, &reduce, graph, cost, sent);
	if (gather.bytes)
		add(c, &gather, graph, cost, sent);
}
