/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UniPrefill's rule: keep the blocks of a prompt that its last queries look at most.
 *
 * c[B] is the share of block B in the mass (mass.h) of the request.  Blocks are taken by descending
 * c, at equal c the higher first.  A block is kept if the shares of the blocks before it add up to
 * at most p: the block that crosses p is kept.  The first 'sinks' tokens and the last 'last-q' stay
 * in any case.  With crossing=exclude the crossing block is dropped, if it is not the very first;
 * sinks and last tokens are whole blocks.
 *
 * Decisions are made from the tokens that are left: index 64 of a layer is its 65th kept token,
 * whatever was dropped before.  A dropped token never comes back.
 *
 * In mode 'official' a prompt is one chunk; one that is cut into several keeps all of its tokens.
 * In mode 'append' each chunk is decided on its own, by its own last queries: with scores=cache
 * among all blocks of the cache, of which only the chunk's can be dropped; with scores=chunk among
 * the chunk's own.
 *
 * Ranks that share the heads add up their masses (sum_ranks.h), each rounded like a sum of heads.
 *
 * The published code rounds scores, sums of heads, masses and shares to bf16, as here with
 * rounding=bf16.  It adds the shares in fp32; here they are integers in units of 2^-40.
 *
 * In the paper all tokens come back at the next drop layer, with their old states (its equation 8).
 * The published code does not do it; reconstitute=1 does.  Then each drop layer runs all tokens and
 * chooses anew.  The layers up to the next drop layer run the tokens that it kept.
 */
#include "config.h"
#include "kernels/drop/uniprefill/uniprefill.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/drop/sum_ranks.h"
#include "kernels/select/top.h"

/* ---- layers ---- */

/* Drop layers published for a model; mixer tells the model from others of the same depth. */
static const struct {
	int n_layers;
	enum mixer mixer; /* of layer 0 */
	const char *layers;
} published[] = {
	{ 32, MIX_FULL, "7+11+15+19+23+27" },		    /* Llama-3.1-8B */
	{ 48, MIX_LINEAR, "7+11+15+19+23+27+31+35+39+43" }, /* Qwen3-Next-80B-A3B */
	{ 48, MIX_WINDOW, "29+35+41" },			    /* Gemma-3-12B */
};

static enum ar_status published_layers(const struct model *m, const char **out, struct ar_err *err)
{
	for (size_t i = 0; i < sizeof published / sizeof *published; i++)
		if (published[i].n_layers == m->n_layers && published[i].mixer == m->layer->mixer) {
			*out = published[i].layers;
			return AR_OK;
		}
	return ar_fail(err, AR_USAGE,
		       "no layers are published for model '%s': add layers=LAYER+LAYER...",
		       m->name);
}

static enum ar_status uniprefill_open(void **self, const void *param, const struct model *m,
				      struct ar_err *err)
{
	const struct uniprefill *p = param;
	struct uniprefill_self *x = calloc(1, sizeof *x);
	const char *layers = p->layers;
	enum ar_status st = AR_OK;

	*self = NULL;
	if (!x)
		return ar_nomem(err);
	x->rule = *p;
	if (!layers)
		st = published_layers(m, &layers, err);
	if (!st)
		st = layer_list_read(&x->layers, layers, 0, m, err);
	if (st)
		free(x);
	else
		*self = x;
	return st;
}

static bool uniprefill_acts_after(const void *self, int layer)
{
	return layer_list_find(&((const struct uniprefill_self *)self)->layers, layer) >= 0;
}

static bool brings_back(const void *self)
{
	return ((const struct uniprefill_self *)self)->rule.reconstitute;
}

static bool counts_positions(const void *self)
{
	return ((const struct uniprefill_self *)self)->rule.window_space == WINDOW_ORIGINAL;
}

static enum ar_status uniprefill_check(const struct opt_group *g, struct ar_err *err)
{
	const struct uniprefill *p = g->base;
	struct layer_list list;

	if (p->block & (p->block - 1))
		return ar_fail(err, AR_USAGE, "block=%lld: want a power of two",
			       (long long)p->block);
	if (p->mode == MODE_OFFICIAL && p->scores == SCORES_CHUNK)
		return ar_fail(err, AR_USAGE, "scores=chunk: only with mode=append");
	return p->layers ? layer_list_parse(&list, p->layers, 0, err) : AR_OK;
}

/* ---- reference ---- */

static float rounded(const struct uniprefill *p, float x)
{
	return p->rounding == ROUNDING_BF16 ? bf16_round(x) : x;
}

enum ar_status uniprefill_pick(const struct uniprefill *p, const float *mass, int n, uint8_t *kept,
			       struct ar_err *err)
{
	uint64_t all = 0, before = 0, limit = uniprefill_limit(p);
	struct top_cell *cell = malloc((size_t)n * sizeof *cell);

	if (!cell)
		return ar_nomem(err);
	for (int i = 0; i < n; i++)
		all += uniprefill_fixed(rounded(p, mass[i]));
	for (int i = 0; i < n; i++)
		cell[i] = (struct top_cell){ (double)uniprefill_share(rounded(p, mass[i]), all),
					     -i };
	top_sort(cell, n); /* of equal shares the highest block */
	for (int i = 0; i < n; i++) {
		uint64_t own = uniprefill_fixed(rounded(p, (float)cell[i].key));
		uint64_t sum = p->crossing == CROSSING_INCLUDE ? before : before + own;

		kept[-cell[i].at] = !i || sum <= limit;
		before += own;
	}
	free(cell);
	return AR_OK;
}

static int64_t scores_of(const void *self, const struct attn_batch *b, int n_step)
{
	const struct uniprefill *p = &((const struct uniprefill_self *)self)->rule;
	const struct mass_rule m = uniprefill_mass(p);

	return n_step > p->min_tokens ? mass_room(&m, &b->shape, b->keys.n_page, b->rows.n_req) : 0;
}

static enum ar_status uniprefill_request_ref(const struct drop_call *drop,
					     const struct uniprefill *p, int r, uint8_t *keep,
					     struct ar_err *err)
{
	const struct attn_call *call = drop->at;
	const struct attn_batch *b = call->b;
	struct mass_rule m = uniprefill_mass(p);
	int n = mass_blocks(&m, b, r), base = mass_base(&m, b, r), end = b->keys.len[r];
	float *mass = malloc((size_t)n * sizeof *mass);
	uint8_t *kept = malloc((size_t)n);
	enum ar_status st = mass && kept ? mass_ref(&m, b, r, call->q, call->kv.k, mass, err) :
					   ar_nomem(err);

	for (int i = 0; i < n && !st && drop->ranks.n > 1; i++)
		mass[i] = rounded(p, mass[i]);
	if (!st)
		st = sum_ranks(&drop->ranks, mass, n, err);
	if (!st)
		st = uniprefill_pick(p, mass, n, kept, err);
	for (int i = b->rows.row0[r]; !st && i < b->rows.row0[r + 1]; i++) {
		int pos = b->rows.pos[i];

		keep[i] = kept[(pos - base) / p->block] || uniprefill_stays(p, pos, base, n, end);
	}
	free(mass);
	free(kept);
	return st;
}

static enum ar_status uniprefill_ref(const struct drop_call *call, const void *self, uint8_t *keep,
				     struct ar_err *err)
{
	const struct uniprefill *p = &((const struct uniprefill_self *)self)->rule;
	const struct attn_batch *b = call->at->b;
	struct mass_rule m = uniprefill_mass(p);
	enum ar_status st = AR_OK;

	memset(keep, 1, (size_t)b->rows.n_row);
	if (call->n_step <= p->min_tokens)
		return AR_OK;
	for (int r = 0; !st && r < b->rows.n_req; r++)
		if (mass_rows(&m, b, r))
			st = uniprefill_request_ref(call, p, r, keep, err);
	return st;
}

/* ---- descriptor ---- */

static const char *const modes[] = { "official", "append", NULL };
static const char *const scores[] = { "cache", "chunk", NULL };
static const char *const spaces[] = { "compact", "original", NULL };
static const char *const crossings[] = { "include", "exclude", NULL };
static const char *const roundings[] = { "bf16", "none", NULL };

#define OFF(member) offsetof(struct uniprefill, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "p", .type = OPT_REAL, .off = OFF(p), .arg = "X", .def = "0.99", .max = 1,
	  .help = "blocks that stay hold the share X of the last queries' attention" },
	{ .name = "block", .type = OPT_INT, .off = OFF(block), .arg = "N", .def = "64", .min = 1,
	  .max = MASS_BLOCK, .help = "tokens of a block, a power of two" },
	{ .name = "last-q", .type = OPT_INT, .off = OFF(last_q), .arg = "N", .def = "128",
	  .min = 1, .max = 512, .help = "the last N queries score, and their tokens stay" },
	{ .name = "sinks", .type = OPT_INT, .off = OFF(sinks), .arg = "N", .def = "128",
	  .max = 1 << 20, .help = "the first N tokens stay" },
	{ .name = "layers", .type = OPT_STR, .off = OFF(layers), .arg = "LIST",
	  .help = "drop at these layers, as 7+11+15; if not given, the published ones" },
	{ .name = "mode", .type = OPT_ENUM, .off = OFF(mode), .arg = "MODE", .def = "official",
	  .choice = modes, .help = "official: only prompts of one chunk; append: every chunk" },
	{ .name = "scores", .type = OPT_ENUM, .off = OFF(scores), .arg = "KEYS", .def = "cache",
	  .choice = scores, .help = "with mode=append, score a chunk among all keys or its own" },
	{ .name = "window-space", .type = OPT_ENUM, .off = OFF(window_space), .arg = "SPACE",
	  .def = "compact", .choice = spaces,
	  .help = "what windows count: kept tokens (compact), or positions" },
	{ .name = "crossing", .type = OPT_ENUM, .off = OFF(crossing), .arg = "RULE",
	  .def = "include", .choice = crossings, .help = "whether the block that crosses p stays" },
	{ .name = "min-tokens", .type = OPT_INT, .off = OFF(min_tokens), .arg = "N", .def = "256",
	  .max = 1 << 30, .help = "drop nothing in iterations of up to N rows" },
	{ .name = "rounding", .type = OPT_ENUM, .off = OFF(rounding), .arg = "KIND",
	  .def = "bf16", .choice = roundings,
	  .help = "round scores, masses and shares as the published code does, or not" },
	{ .name = "reconstitute", .type = OPT_FLAG, .off = OFF(reconstitute),
	  .help = "bring all tokens back at each drop layer, as the paper says" },
	{ 0 }
};
/* clang-format on */

static const struct dropper_band bands[] = {
	{ "uniprefill:layers=0,min-tokens=0,block=32,last-q=24,sinks=32,mode=append,rounding=none,"
	  "p=%",
	  "0.6", "0.5", "0.7", 0.01 },
	{ "uniprefill:layers=0,min-tokens=0,block=16,last-q=24,sinks=32,p=%", "0.8", "0.7", "0.9",
	  0.03 },
	{ 0 }
};

extern const struct dropper dropper_uniprefill;
const struct dropper dropper_uniprefill = {
	.name = "uniprefill",
	.title = "keep the blocks that the last queries look at most",
	.origin = "UniPrefill (2026), as its published code",
	.params = params,
	.param_size = sizeof(struct uniprefill),
	.place = DROP_BEFORE_MLP,
	.check = uniprefill_check,
	.open = uniprefill_open,
	.close = free,
	.acts_after = uniprefill_acts_after,
	.scores = scores_of,
	.brings_back = brings_back,
	.counts_positions = counts_positions,
	.ref = uniprefill_ref,
	.band = bands,
	.work_bytes = HAVE_CUDA ? uniprefill_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? uniprefill_enqueue : NULL,
};
