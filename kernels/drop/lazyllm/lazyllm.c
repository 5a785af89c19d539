/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LazyLLM's rule: after a layer, drop the tokens that its attention gives least to the last one.
 *
 * The score of a token is the attention of the chunk's last row, summed over heads.  Of n rows the
 * floor(rate n) with the smallest scores are dropped, of equal ones the higher; the last row stays.
 * Ranks that share the heads add up their scores (sum_ranks.h).
 *
 * With aux-revival a decode ranks all n tokens in the cache of the layer by its attention.  Its own
 * token is one of the n.  Of the n - floor(rate n) that the rule would keep, it revives the tokens
 * that did not go on before.  The residual stream that they left the layer with goes on beside the
 * decode's.  So a token is computed at most once in each layer.
 *
 * The paper revives all of these at once, and its decodes see nothing but the tokens that the rule
 * keeps.  Here a decode revives at most revive-max of a request, with the most attention first:
 * CUDA graphs have a fixed number of rows.  A decode sees all tokens in the cache of a layer.
 */
#include "config.h"
#include "kernels/drop/lazyllm/lazyllm.h"

#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "kernels/drop/sum_ranks.h"
#include "kernels/select/top.h"

static enum ar_status lazyllm_open(void **self, const void *param, const struct model *m,
				   struct ar_err *err)
{
	const struct lazyllm *p = param;
	struct lazyllm_self *x = calloc(1, sizeof *x);
	enum ar_status st;

	*self = NULL;
	if (!x)
		return ar_nomem(err);
	st = layer_list_read_or(&x->layers, p->layers, "12:0.3+20:0.5+28:0.7", "RATE", 1, m, err);
	x->revives = p->aux_revival ? (int)p->revive_max : 0;
	if (st)
		free(x);
	else
		*self = x;
	return st;
}

static bool lazyllm_acts_after(const void *self, int layer)
{
	return layer_list_find(&((const struct lazyllm_self *)self)->layers, layer) >= 0;
}

static enum ar_status lazyllm_check(const struct opt_group *g, struct ar_err *err)
{
	const struct lazyllm *p = g->base;
	struct layer_list list;

	if (opt_given(g, "revive-max") && !p->aux_revival)
		return ar_fail(err, AR_USAGE, "revive-max: only with aux-revival=1");
	return p->layers ? layer_list_parse(&list, p->layers, 1, err) : AR_OK;
}

static int revives(const void *self)
{
	return ((const struct lazyllm_self *)self)->revives;
}

/* Count the scores of a call.  A decode has as many as a prompt with its keys. */
static int64_t scores_of(const void *self, const struct attn_batch *b, int n_step)
{
	const struct mass_rule m = lazyllm_mass();

	(void)self, (void)n_step;
	return mass_room(&m, &b->shape, b->keys.n_page, b->rows.n_req);
}

/* ---- reference ---- */

static enum ar_status lazyllm_request_ref(const struct drop_call *drop, double rate, int r,
					  uint8_t *keep, struct ar_err *err)
{
	const struct attn_call *call = drop->at;
	const struct attn_batch *b = call->b;
	const struct mass_rule m = lazyllm_mass();
	int n = attn_n_row(&b->rows, r), stay = lazyllm_stay(rate, n);
	float *mass = malloc((size_t)b->keys.len[r] * sizeof *mass);
	struct top_cell *cell = malloc((size_t)n * sizeof *cell);
	enum ar_status st = mass && cell ? mass_ref(&m, b, r, call->q, call->kv.k, mass, err) :
					   ar_nomem(err);

	if (!st)
		st = sum_ranks(&drop->ranks, mass, b->keys.len[r], err);
	if (!st) {
		top_of(cell, mass + b->rows.pos0[r], n - 1);
		for (int i = stay - 1; i < n - 1; i++)
			keep[b->rows.row0[r] + cell[i].at] = 0;
	}
	free(mass);
	free(cell);
	return st;
}

static double rate_of(const struct lazyllm_self *x, int layer)
{
	return x->layers.value[layer_list_find(&x->layers, layer)];
}

static enum ar_status lazyllm_ref(const struct drop_call *call, const void *self, uint8_t *keep,
				  struct ar_err *err)
{
	const struct lazyllm_self *x = self;
	const struct attn_batch *b = call->at->b;
	const struct mass_rule m = lazyllm_mass();
	double rate = rate_of(x, call->at->layer);
	enum ar_status st = AR_OK;

	memset(keep, 1, (size_t)b->rows.n_row);
	for (int r = 0; !st && r < b->rows.n_req; r++)
		if (mass_rows(&m, b, r))
			st = lazyllm_request_ref(call, rate, r, keep, err);
	return st;
}

/* Choose for request r; gone, n and index are its own. */
static enum ar_status revive_request(const struct drop_call *call, const struct lazyllm_self *x,
				     int r, const uint8_t *gone, int32_t *n, int32_t *index,
				     struct ar_err *err)
{
	const struct attn_call *at = call->at;
	const struct mass_rule m = lazyllm_decode_mass();
	int len = at->b->keys.len[r], stay = lazyllm_stay(rate_of(x, at->layer), len);
	float *mass = malloc((size_t)len * sizeof *mass);
	struct top_cell *cell = malloc((size_t)len * sizeof *cell);
	enum ar_status st = mass && cell ? mass_ref(&m, at->b, r, at->q, at->kv.k, mass, err) :
					   ar_nomem(err);

	*n = 0;
	if (!st)
		st = sum_ranks(&call->ranks, mass, len, err);
	if (!st)
		top_of(cell, mass, len - 1);
	for (int i = 0; i < stay - 1 && *n < x->revives && !st; i++)
		if (gone[cell[i].at])
			index[(*n)++] = (int32_t)cell[i].at;
	if (!st)
		qsort(index, (size_t)*n, sizeof *index, order_i32);
	free(mass);
	free(cell);
	return st;
}

static enum ar_status revive_ref(const struct drop_call *call, const void *self,
				 const struct drop_revived *out, struct ar_err *err)
{
	const struct lazyllm_self *x = self;
	const struct attn_batch *b = call->at->b;
	enum ar_status st = AR_OK;

	for (int r = 0; r < b->rows.n_req && !st; r++)
		st = revive_request(call, x, r,
				    out->gone + (ptrdiff_t)b->keys.page0[r] * b->shape.page_tok,
				    &out->n[r], out->index + (ptrdiff_t)r * x->revives, err);
	return st;
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct lazyllm, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "layers", .type = OPT_STR, .off = OFF(layers), .arg = "LIST",
	  .help = "layers and the share of tokens to drop, as 12:0.3+20:0.5+28:0.7" },
	{ .name = "aux-revival", .type = OPT_FLAG, .off = OFF(aux_revival),
	  .help = "decodes revive dropped tokens that the rule now keeps" },
	{ .name = "revive-max", .type = OPT_INT, .off = OFF(revive_max), .arg = "N", .def = "16",
	  .min = 1, .max = 1024,
	  .help = "most tokens of a request that a decode revives, with aux-revival=1" },
	{ 0 }
};
/* clang-format on */

static const struct dropper_band bands[] = { { "lazyllm:layers=0:%", "0.5", "0.55", "0.45", 0.01 },
					     { "lazyllm:layers=0:%", "0.9", "0.95", "0.85", 0.01 },
					     { 0 } };

extern const struct dropper dropper_lazyllm;
const struct dropper dropper_lazyllm = {
	.name = "lazyllm",
	.title = "drop the tokens that the last one attends to least (unverified)",
	.origin = "LazyLLM (2024), layers and rates are ours",
	.params = params,
	.param_size = sizeof(struct lazyllm),
	.place = DROP_AFTER_LAYER,
	.check = lazyllm_check,
	.open = lazyllm_open,
	.close = free,
	.acts_after = lazyllm_acts_after,
	.scores = scores_of,
	.revives = revives,
	.revive_ref = revive_ref,
	.ref = lazyllm_ref,
	.band = bands,
	.work_bytes = HAVE_CUDA ? lazyllm_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? lazyllm_enqueue : NULL,
	.revive_enqueue = HAVE_CUDA ? lazyllm_revive_enqueue : NULL,
};
