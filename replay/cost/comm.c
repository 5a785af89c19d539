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

/* Whether there are partial sums at a place of a model: after the mixer of layer place / 2, or
 * after its MLP. */
static bool sums(const struct comm *c, const struct model *m, int place)
{
	const struct layer_spec *l = &m->layer[place / 2];
	const bool shared = c->experts.experts && l->n_experts;

	return place % 2 ? l->ffn > 0 && !shared : l->mixer != MIX_NONE;
}

static bool runs(const struct comm *c, int layer)
{
	for (int i = 0; i < c->n_run && c->run; i++)
		if (c->run[i] == layer)
			return true;
	return !c->run;
}

void comm_bind(struct comm *c, const struct model *m, const int *run, int n)
{
	if (c->experts.experts)
		comm_experts_bind(&c->experts, m, run, n);
	c->model = m;
	c->run = run;
	c->n_run = n;
	c->ranks = m->tp;
	c->hidden = m->hidden;
	c->vocab = (int64_t)m->vocab * m->tp;
	c->n_reduce = c->n_run_reduce = 1; /* of the embedding */
	for (int i = 0; i < 2 * m->n_layers; i++) {
		c->n_reduce += sums(c, m, i);
		c->n_run_reduce += sums(c, m, i) && runs(c, i / 2);
	}
}

/* Collectives of a layer whose experts are spread over engines. */
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
	enum phase phase;
	enum comm_op op;
	int64_t bytes, n, n_run;
};

static void add(const struct comm *c, const struct message *m, bool graph, struct iter_cost *cost,
		int64_t sent[COMM_KERNELS])
{
	const int64_t ns = comm_ns(c, m->op, m->bytes, graph);

	cost->cost_ns = num_add(cost->cost_ns, num_mul(m->n, ns));
	cost->phase_ns[m->phase] = num_add(cost->phase_ns[m->phase], num_mul(m->n_run, ns));
	cost->phase_kernels[m->phase] += (int32_t)m->n_run;
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
		{ PHASE_COMM, comm_experts_op(x->way, false), whole_bytes(bytes.dispatch), layers,
		  run },
		{ PHASE_COMM, comm_experts_op(x->way, true), whole_bytes(bytes.combine), layers,
		  run },
		{ PHASE_COMM, COMM_GATHER, num_mul(own, BF16 * c->hidden), layers, run },
	};

	for (int i = 0; i < expert_messages(c); i++)
		add(c, &m[i], graph, cost, sent);
}

/* Make the message that adds up `rows` rows over ranks.  The model sends it n times, its executed
 * layers n_run times. */
static struct message reduce(const struct comm *c, int64_t rows, int64_t n, int64_t n_run)
{
	return (struct message){ PHASE_COMM, COMM_REDUCE, rows * BF16 * c->hidden, n, n_run };
}

/* Sums at the places [from, to). */
static struct message reduce_at(const struct comm *c, int from, int to, int64_t rows)
{
	struct message m = reduce(c, rows, 0, 0);

	for (int i = from; i < to; i++) {
		m.n += sums(c, c->model, i);
		m.n_run += sums(c, c->model, i) && runs(c, i / 2);
	}
	return m;
}

/* Sums of layers where rows change, and what droppers gather. */
static void add_drops(const struct comm *c, int64_t rows, bool graph, struct iter_cost *cost,
		      int64_t sent[COMM_KERNELS])
{
	struct message m;
	int at = 0;

	for (size_t k = 0; k < cost->n_drop_messages; k++) {
		const struct drop_messages *d = &cost->drop_messages[k];
		const int layer = 2 * d->layer, end = layer + (d->before_mlp ? 1 : 2);

		m = reduce_at(c, at, layer, rows);
		add(c, &m, graph, cost, sent);
		m = reduce_at(c, layer, end, d->rows);
		add(c, &m, graph, cost, sent);
		for (int i = 0; i < 2; i++) {
			m = (struct message){ PHASE_COMM_SELECT, COMM_GATHER,
					      d->score[i] * (int64_t)sizeof(float) * c->ranks, 1,
					      1 };
			if (m.bytes)
				add(c, &m, graph, cost, sent);
		}
		rows = d->kept;
		at = end;
	}
	m = reduce_at(c, at, 2 * c->model->n_layers, rows);
	add(c, &m, graph, cost, sent);
}

/* Sums of the ranks of an engine, and their logits. */
static void add_sums(const struct comm *c, const struct batch *b, bool graph,
		     struct iter_cost *cost, int64_t sent[COMM_KERNELS])
{
	const bool drops = cost->n_drop_messages;
	const struct message all = drops ? reduce(c, batch_rows(b), 1, 1) : /* of the embedding */
					   reduce(c, batch_rows(b), c->n_reduce, c->n_run_reduce);
	struct message gather = { PHASE_COMM, COMM_GATHER, 0, 1, 1 };

	for (size_t i = 0; i < b->n; i++)
		gather.bytes += b->entry[i].n_emit * BF16 * c->vocab;
	add(c, &all, graph, cost, sent);
	if (drops)
		add_drops(c, batch_rows(b), graph, cost, sent);
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
