/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LazyLLM's rule: after a layer, drop the tokens that its attention gives least to the last one.
 *
 * The score of a token is the attention of the chunk's last row, summed over heads.  Of n rows the
 * floor(rate n) with the smallest scores are dropped, of equal ones the higher; the last row stays.
 *
 * The paper also lets a dropped token come back in a decode, with the state that it had.  This
 * would need the residual stream of every dropped row to be kept, by layer, and a decode that
 * computes other rows than its own.
 */
#include "config.h"
#include "kernels/drop/lazyllm/lazyllm.h"

#include <stdlib.h>
#include <string.h>

static enum ar_status open_self(void **self, const void *param, const struct model *m,
				struct ar_err *err)
{
	const struct lazyllm *p = param;
	struct lazyllm_self *x = calloc(1, sizeof *x);
	enum ar_status st;

	*self = NULL;
	if (!x)
		return ar_nomem(err);
	st = layer_list_read_or(&x->layers, p->layers, "12:0.3+20:0.5+28:0.7", "RATE", 1, m, err);
	if (st)
		free(x);
	else
		*self = x;
	return st;
}

static bool acts_after(const void *self, int layer)
{
	return layer_list_find(&((const struct lazyllm_self *)self)->layers, layer) >= 0;
}

static enum ar_status check(const void *param, struct ar_err *err)
{
	const struct lazyllm *p = param;
	struct layer_list list;

	if (p->aux_revival)
		return ar_fail(err, AR_USAGE,
			       "aux-revival=1: dropped tokens do not come back here; use "
			       "aux-revival=0");
	return p->layers ? layer_list_parse(&list, p->layers, 1, err) : AR_OK;
}

/* ---- reference ---- */

struct cell {
	float score;
	int row;
};

static int by_score(const void *x, const void *y)
{
	const struct cell *a = x, *b = y;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->row < b->row ? -1 : 1;
}

static enum ar_status request_ref(const struct attn_call *call, double rate, int r, uint8_t *keep,
				  struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct mass_rule m = lazyllm_mass();
	int n = attn_n_row(&b->rows, r), stay = lazyllm_stay(rate, n);
	float *mass = malloc((size_t)b->keys.len[r] * sizeof *mass);
	struct cell *cell = malloc((size_t)n * sizeof *cell);
	enum ar_status st = mass && cell ? mass_ref(&m, b, r, call->q, call->kv.k, mass, err) :
					   ar_nomem(err);

	if (!st) {
		for (int i = 0; i < n - 1; i++)
			cell[i] = (struct cell){ mass[b->rows.pos0[r] + i], b->rows.row0[r] + i };
		qsort(cell, (size_t)n - 1, sizeof *cell, by_score);
		for (int i = stay - 1; i < n - 1; i++)
			keep[cell[i].row] = 0;
	}
	free(mass);
	free(cell);
	return st;
}

static enum ar_status ref(const struct drop_call *call, const void *self, uint8_t *keep,
			  struct ar_err *err)
{
	const struct lazyllm_self *x = self;
	const struct attn_batch *b = call->at->b;
	const struct mass_rule m = lazyllm_mass();
	double rate = x->layers.value[layer_list_find(&x->layers, call->at->layer)];
	enum ar_status st = AR_OK;

	memset(keep, 1, (size_t)b->rows.n_row);
	for (int r = 0; !st && r < b->rows.n_req; r++)
		if (mass_rows(&m, b, r))
			st = request_ref(call->at, rate, r, keep, err);
	return st;
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct lazyllm, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "layers", .type = OPT_STR, .off = OFF(layers), .arg = "LIST",
	  .help = "layers and the share of tokens to drop, as 12:0.3+20:0.5+28:0.7" },
	{ .name = "aux-revival", .type = OPT_FLAG, .off = OFF(aux_revival),
	  .help = "dropped tokens come back in decodes; only 0 is there" },
	{ 0 }
};
/* clang-format on */

extern const struct dropper dropper_lazyllm;
const struct dropper dropper_lazyllm = {
	.name = "lazyllm",
	.title = "drop the tokens that the last one attends to least (unverified)",
	.origin = "LazyLLM (2024), layers and rates are ours",
	.params = params,
	.param_size = sizeof(struct lazyllm),
	.place = DROP_AFTER_LAYER,
	.check = check,
	.open = open_self,
	.close = free,
	.acts_after = acts_after,
	.ref = ref,
	.work_bytes = HAVE_CUDA ? lazyllm_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? lazyllm_enqueue : NULL,
};
