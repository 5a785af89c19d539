/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/host/host.h"

#include <math.h>

#include "base/number.h"
#include "base/rng.h"

const char *const host_kind_names[] = { "graph", "pieces", "eager" };

/* A norm, the products before and after the mixer, and its own kernels.  Of attention: RoPE, cache
 * write and attention.  Of a linear or state-space layer: the kernels of prompts in backend cuda:
 * convolution, chunks, scan, norm and kept rows; of a linear one the product of b and a, too.
 * Latent attention has a norm of latents, a product before attention, and one after it; perhaps a
 * second product of Q.  An indexer has two products, and four kernels more. */
static int64_t mixer_kernels(const struct layer_spec *l)
{
	int64_t own = 3 + l->qk_norm + l->out_gate;

	if (l->mixer == MIX_NONE)
		return 0;
	if (l->mixer == MIX_LATENT)
		own = 6 + !!l->mla.q_lora + 6 * l->index.own;
	else if (!mixer_attends(l->mixer))
		own = l->mixer == MIX_LINEAR ? 6 : 5;
	return 3 - l->beside + own;
}

/* A norm, products of gate and up, and of down, with the activation between.  Experts: router,
 * top-k, two of alignment, and the sum, more, perhaps with two products around them.  A shared
 * expert is one more MLP, perhaps with a gate. */
static int64_t mlp_kernels(const struct layer_spec *l)
{
	if (!l->ffn)
		return 0;
	return 4 + (l->n_experts ? 5 : 0) + (l->expert_hidden ? 2 : 0) +
	       (l->shared_ffn ? 3 + l->shared_gate : 0);
}

/* Biases and norms after attention and MLP
 * belong to kernels that are there without them. */
int64_t host_kernels(const struct model *m)
{
	int64_t n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += mixer_kernels(&m->layer[i]) + mlp_kernels(&m->layer[i]);
	return n;
}

void host_bind(struct host *h, int64_t n_layers, int64_t n_kernels)
{
	h->n_layers = n_layers;
	h->n_kernels = n_kernels;
}

struct host_load host_load(const struct host *h, const struct batch *b)
{
	struct host_load x = { .n_req = (int64_t)b->n, .n_tok = b->prefill_tok + b->decode_tok };

	x.kind = x.n_tok > h->max_captured ? HOST_KIND_EAGER :
		 b->prefill_tok		   ? HOST_KIND_PIECES :
					     HOST_KIND_GRAPH;
	if (b->prefill_tok)
		for (size_t i = 0; i < b->n; i++)
			x.n_join += !b->entry[i].chunk_no;
	return x;
}

/* ns[at] + n * ns[each] */
static int64_t linear(const struct host *h, enum host_time at, int64_t n, enum host_time each)
{
	return num_add(h->ns[at], num_mul(n, h->ns[each]));
}

static int64_t launch_time(const struct host *h, const struct host_load *x)
{
	int64_t extra = num_mul(x->kernel_extra, h->ns[HOST_EAGER_KERNEL]);

	switch (x->kind) {
	case HOST_KIND_GRAPH: return h->ns[HOST_GRAPH];
	case HOST_KIND_PIECES:
		return num_add(linear(h, HOST_PIECES, h->n_layers, HOST_PIECES_LAYER), extra);
	default: return num_add(linear(h, HOST_EAGER, h->n_kernels, HOST_EAGER_KERNEL), extra);
	}
}

static int64_t cube(int64_t x)
{
	return x * x * x;
}

/* x is the sum of three random numbers below 2^16.  Return its quantile, from 0 to HOST_SPREAD - 1,
 * by the distribution of such sums. */
static int64_t quantile_of_sum(int64_t x)
{
	const int64_t one = 1 << 16, all = 6 * cube(one);
	int64_t below = x <= one     ? cube(x) :
			x <= 2 * one ? cube(x) - 3 * cube(x - one) :
				       all - cube(3 * one - x);

	return below * HOST_SPREAD / all;
}

static int64_t draw_rank(uint64_t seed, int64_t now)
{
	const int64_t spell[] = { now, now / HOST_SPELL_NS, now / HOST_LONG_SPELL_NS };
	int64_t sum = 0;

	for (uint64_t i = 0; i < sizeof spell / sizeof *spell; i++)
		sum += (int64_t)(rng_mix(rng_mix(seed + i) + (uint64_t)spell[i]) >> 48);
	return quantile_of_sum(sum);
}

int64_t host_draw(uint64_t seed, int ranks, int64_t now)
{
	int64_t slowest = draw_rank(seed, now);

	for (int i = 1; i < ranks; i++) {
		int64_t draw = draw_rank(rng_mix(seed) + rng_mix((uint64_t)i), now);

		if (draw > slowest)
			slowest = draw;
	}
	return slowest;
}

/* Draw the time of ns from the spread of the load's kind. */
static int64_t spread_time(const struct host *h, const struct host_load *x, int64_t ns)
{
	const int64_t part = h->spread[x->kind][x->draw];

	return part ? num_add(num_mul(ns / 1000, part), ns % 1000 * part / 1000) : ns;
}

static int64_t gap_time(const struct host *h, const struct host_load *x)
{
	int64_t layers = x->kind == HOST_KIND_EAGER ? h->n_layers : 0;

	return num_add(linear(h, HOST_GAP, x->n_req, HOST_GAP_REQ),
		       num_mul(layers, h->ns[HOST_GAP_LAYER]));
}

struct host_parts host_parts(const struct host *h, const struct host_load *x)
{
	int64_t join = num_mul(x->n_join, h->ns[HOST_JOIN]);
	int64_t tok = num_mul(x->n_tok, h->ns[HOST_PREPARE_TOK]);
	int64_t wake = x->idle ? h->ns[HOST_WAKE] : 0;
	int64_t batch = x->kind == HOST_KIND_GRAPH ? num_mul(x->n_req, h->ns[HOST_PREPARE_REQ]) :
						     h->ns[HOST_PREPARE];
	int64_t prepare = num_add(batch, num_add(wake, num_add(join, tok)));

	return (struct host_parts){
		.schedule = num_add(linear(h, HOST_SCHEDULE, x->n_req, HOST_SCHEDULE_REQ),
				    num_mul(x->n_tok, h->ns[HOST_SCHEDULE_TOK])),
		.prepare = spread_time(h, x, prepare),
		.launch = spread_time(h, x, launch_time(h, x)),
		.update = linear(h, HOST_UPDATE, x->n_req, HOST_UPDATE_REQ),
		.gap = gap_time(h, x),
	};
}

int64_t host_admit(const struct host *h, int64_t prompt_tok)
{
	return linear(h, HOST_ADMIT, prompt_tok, HOST_ADMIT_TOK);
}

int64_t host_receive(const struct host *h, int64_t prompt_tok)
{
	return num_add(linear(h, HOST_RECEIVE, prompt_tok, HOST_RECEIVE_TOK),
		       linear(h, HOST_HTTP, prompt_tok, HOST_HTTP_TOK));
}

static int64_t later_ns(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

int64_t host_deliver(const struct host *h, int64_t n_req, bool eager, int64_t now, int64_t *free_at)
{
	int64_t held = eager ? h->ns[HOST_DELIVER_EAGER] : 0;
	int64_t way = num_add(h->ns[HOST_DELIVER], h->ns[HOST_HTTP_SEND]);
	int64_t begin = num_add(now, num_add(way, held));
	int64_t each = num_add(h->ns[HOST_DELIVER_REQ], h->ns[HOST_HTTP_SEND_REQ]);

	*free_at = num_add(later_ns(begin, *free_at), num_mul(n_req, each));
	return *free_at;
}

static bool has_any(const struct host *h, int from, int to)
{
	for (int i = from; i <= to; i++)
		if (h->ns[i])
			return true;
	return false;
}

bool host_has_http(const struct host *h)
{
	return has_any(h, HOST_HTTP, HOST_HTTP_SEND_REQ);
}

bool host_has_front(const struct host *h)
{
	return has_any(h, HOST_FRONT, HOST_HTTP_SEND_REQ);
}

void host_scale(struct host *h, double x)
{
	for (int i = 0; i < HOST_N_TIMES; i++)
		if (i != HOST_GAP && i != HOST_GAP_REQ && i != HOST_GAP_LAYER)
			h->ns[i] = (int64_t)fmin((double)h->ns[i] * x, 0x1p62);
}

int64_t host_run(struct host_clock *c, const struct host_parts *p, enum host_kind kind,
		 int64_t gpu_ns, bool async)
{
	int64_t before = c->gpu_end, from = later_ns(c->now, before);
	int64_t first = num_add(c->now, num_add(p->schedule, p->prepare)), begin, end;

	c->launched = num_add(first, p->launch);
	/* a graph starts when its launch returns, other kernels while the rest is launched */
	begin = num_add(later_ns(kind == HOST_KIND_GRAPH ? c->launched : first, before), p->gap);
	end = num_add(begin, gpu_ns);
	c->gpu_end = later_ns(end, c->launched);
	if (!async) {
		c->now = num_add(c->gpu_end, p->update);
	} else {
		c->now = c->launched;
		if (c->in_flight)
			c->now = num_add(later_ns(c->now, before), c->update);
		c->update = p->update;
		c->in_flight = true;
	}
	return c->gpu_end - from - (end - begin);
}

void host_wait(struct host_clock *c, int64_t schedule_ns)
{
	c->now = num_add(later_ns(num_add(c->now, schedule_ns), c->gpu_end), c->update);
	c->in_flight = false;
}
