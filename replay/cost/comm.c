/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm.h"

#include <math.h>

#include "base/number.h"

enum { BF16 = 2 };

int comm_ranks(const struct comm *c)
{
	return c->experts.experts ? c->experts.ranks : c->ranks;
}

/* Partial sums that a layer leaves. */
static int sums(const struct comm *c, const struct layer_spec *l)
{
	const bool shared = c->experts.experts && l->n_experts;

	return (l->mixer != MIX_NONE) + (l->ffn > 0 && !shared);
}

void comm_bind(struct comm *c, const struct model *m, const int *run, int n)
{
	if (c->experts.experts)
		comm_experts_bind(&c->experts, m, run, n);
	c->ranks = m->tp;
	c->hidden = m->hidden;
	c->vocab = (int64_t)m->vocab * m->tp;
	c->n_reduce = c->n_run_reduce = 1; /* of the embedding */
	for (int i = 0; i < m->n_layers; i++)
		c->n_reduce += sums(c, &m->layer[i]);
	for (int i = 0; i < n && run; i++)
		c->n_run_reduce += sums(c, &m->layer[run[i]]);
	if (!run)
		c->n_run_reduce = c->n_reduce;
}

/* Of a layer with experts that are spread over engines. */
static int expert_messages(const struct comm *c)
{
	return c->ranks > 1 ? 3 : 2;
}

int64_t comm_launches(const struct comm *c)
{
	const int64_t sums = c->ranks > 1 ? c->n_reduce + 1 : 0;

	return sums + (c->experts.experts ? c->experts.n_layer * expert_messages(c) : 0);
}

int64_t comm_ns(const struct comm *c, enum comm_op op, int64_t bytes, bool graph)
{
	const bool experts = op == COMM_COLLECT || op == COMM_SCATTER || op == COMM_SWAP;
	const int ranks = experts ? c->experts.ranks : c->ranks, others = ranks - 1;
	const int hops = op == COMM_REDUCE ? 2 * others : op == COMM_SEND ? 1 : others;
	const double part = op == COMM_SEND ? (double)bytes : (double)bytes / ranks;

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
	const int64_t most_rows = s->rows ? s->largest : own;
	const int64_t largest = most_rows / c->ranks + (most_rows % c->ranks > 0);
	const struct experts_most most = experts_most(x->experts, s->no, -1, rows);
	const struct expert_bytes bytes = comm_experts_bytes(x, rows, largest, &most);
	const int64_t layers = x->n_layer, run = x->n_run_layer;
	const struct message m[] = {
		{ comm_experts_op(x->way, false), whole_bytes(bytes.dispatch), layers, run },
		{ comm_experts_op(x->way, true), whole_bytes(bytes.combine), layers, run },
		{ COMM_GATHER, num_mul(own, BF16 * c->hidden), layers, run },
	};

	for (int i = 0; i < expert_messages(c); i++)
		add(c, &m[i], graph, cost, sent);
}

/* Sums of the ranks of an engine, and their logits. */
static void add_sums(const struct comm *c, const struct batch *b, bool graph,
		     struct iter_cost *cost, int64_t sent[COMM_KERNELS])
{
	struct message reduce = { COMM_REDUCE, batch_rows(b) * BF16 * c->hidden, c->n_reduce,
				  c->n_run_reduce };
	struct message gather = { COMM_GATHER, 0, 1, 1 };

	for (size_t i = 0; i < b->n; i++)
		gather.bytes += b->entry[i].n_emit * BF16 * c->vocab;
	add(c, &reduce, graph, cost, sent);
	if (gather.bytes)
		add(c, &gather, graph, cost, sent);
}

void comm_add(const struct comm *c, const struct batch *b, struct iter_cost *cost,
	      int64_t sent[COMM_KERNELS])
{
	const bool graph = !b->prefill_tok;

	if (c->experts.experts)
		add_experts(c, b, graph, cost, sent);
	if (c->ranks > 1)
		add_sums(c, b, graph, cost, sent);
}
