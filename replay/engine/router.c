/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/router.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "traces/intern.h"

static size_t choose_next(struct routing *r, uint32_t id)
{
	(void)id;
	return r->n_routed % (uint64_t)r->rule.replicas;
}

size_t routing_least(const struct routing *r)
{
	size_t best = 0;

	for (size_t i = 1; i < (size_t)r->rule.replicas; i++)
		if (r->load[i].unfinished < r->load[best].unfinished)
			best = i;
	return best;
}

static size_t choose_least(struct routing *r, uint32_t id)
{
	(void)id;
	return routing_least(r);
}

/* The draw depends on (seed, request) only. */
static size_t choose_drawn(struct routing *r, uint32_t id)
{
	return rng_mix(rng_mix(r->rule.seed) ^ rng_mix(id)) % (uint64_t)r->rule.replicas;
}

/* The first replica from `start` on with the lowest score.  Until loads are published again, the
 * request counts as one that waits there. */
static size_t lowest(struct routing *r, double (*score)(const struct router_load *), size_t start)
{
	const size_t n = (size_t)r->rule.replicas;
	double least = INFINITY;
	size_t best = start;

	for (size_t i = 0; i < n; i++) {
		const size_t k = (start + i) % n;
		const double x = score(&r->load[k]);

		if (x < least) {
			least = x;
			best = k;
		}
	}
	r->load[best].waiting++;
	return best;
}

static double score_4w(const struct router_load *l)
{
	return 4 * (double)l->waiting + (double)l->running;
}

/* A replica with a queue counts more, the more of its KV blocks are in use. */
static double score_queue(const struct router_load *l)
{
	const double queue = (double)(l->waiting + l->running);
	const double full = l->waiting > 0 ? 6 * fmax(0, l->kv_use - 0.5) : 0;

	return fmax((double)l->unfinished, queue) + (double)l->waiting * full;
}

/* vLLM with one client, up to its versions of 2025: core_client.py, get_core_engine_for_request().
 */
static size_t choose_4w(struct routing *r, uint32_t id)
{
	(void)id;
	return lowest(r, score_4w, 0);
}

/* vLLM with one client, versions of 2026. */
static size_t choose_queue(struct routing *r, uint32_t id)
{
	(void)id;
	return lowest(r, score_queue, r->n_routed % (uint64_t)r->rule.replicas);
}

static const struct request_router round_robin = { .name = "round-robin", .choose = choose_next };
static const struct request_router least = { .name = "least", .choose = choose_least };
static const struct request_router drawn = { .name = "random",
					     .drawn = true,
					     .choose = choose_drawn };
static const struct request_router vllm = { .name = "vllm",
					    .published = true,
					    .choose = choose_queue };
static const struct request_router vllm_4w = { .name = "vllm-4w",
					       .published = true,
					       .choose = choose_4w };

const struct request_router *const request_routers[] = { &round_robin, &least,	 &drawn,
							 &vllm,	       &vllm_4w, &router_prefix,
							 NULL };

/* Number the prefix blocks of the trace, whose ids can be far apart.  Returns one more than how
 * many differ; 0: no memory. */
static size_t number_blocks(struct routing *r)
{
	const struct trace *t = r->trace;
	struct chain ids = { 0 };
	size_t n = 0, n_block = 0;
	bool fits;

	for (size_t i = 0; i < t->n; i++)
		n_block += t->req[i].n_block;
	r->first = malloc((t->n + 1) * sizeof *r->first);
	r->block = malloc((n_block + 1) * sizeof *r->block);
	fits = r->first && r->block;
	for (size_t i = 0; i < t->n && fits; i++) {
		r->first[i] = n;
		for (uint32_t k = 0; k < t->req[i].n_block && fits; k++) {
			const struct chain_key key = { .prev = CHAIN_START,
						       .src = trace_block(t, &t->req[i], k) };
			uint64_t no = 0;

			fits = chain_put(&ids, key, ids.n, &no);
			r->block[n++] = (uint32_t)no;
		}
	}
	n = fits ? ids.n + 1 : 0;
	chain_release(&ids);
	return n;
}

enum ar_status routing_open(struct routing *r, const struct router_rule *rule,
			    const struct trace *t, struct ar_err *err)
{
	const size_t n = (size_t)rule->replicas;
	size_t n_block;

	*r = (struct routing){ .rule = *rule, .trace = t, .words = (n + 63) / 64 };
	r->load = calloc(n, sizeof *r->load);
	if (!r->load)
		return ar_nomem(err);
	if (!rule->router->prefixes)
		return AR_OK;
	n_block = number_blocks(r);
	r->known = n_block ? calloc(n_block, r->words * sizeof *r->known) : NULL;
	r->tree_tok = calloc(n, sizeof *r->tree_tok);
	return r->known && r->tree_tok ? AR_OK : ar_nomem(err);
}

void routing_release(struct routing *r)
{
	free(r->load);
	free(r->first);
	free(r->block);
	free(r->known);
	free(r->tree_tok);
	*r = (struct routing){ 0 };
}

size_t routing_choose(struct routing *r, uint32_t id)
{
	const size_t to = r->rule.router->choose(r, id);

	r->n_routed++;
	return to;
}
