/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twilight, a pruner of the lists of any selector of decodes.  Each query head estimates its
 * attention over the tokens of its list, from keys of 4 bits:
 *
 *   low, high = least and largest channel of a key; step = max(high - low, 1e-9) / 15
 *   k4[d]     = low + step * clamp(round((k[d] - low) / step), 0, 15)
 *   weight    = softmax over the list of q . k4 / sqrt(head_dim)
 *
 * It keeps the largest weights until their sum reaches p, the one that reaches it included, and all
 * that equal the last.  Attention then reads the exact keys.
 *
 * The keys of 4 bits are a state: a row makes its own.  Scales are floats, where Twilight has
 * half of their bits.
 */
#include "config.h"
#include "kernels/select/twilight/twilight.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/top.h"

static struct piece_form twilight_pieces(const void *self, const struct attn_shape *s, int len)
{
	(void)self, (void)s, (void)len;
	return (struct piece_form){ .tok = 1, .mask = true };
}

static size_t twilight_state_bytes(const void *self, const struct attn_shape *s)
{
	const struct twilight *p = self;

	return p->estimate == TWILIGHT_EXACT ?
		       0 :
		       (size_t)(s->kv_heads * s->page_tok) * twilight_key_bytes(s->head_dim);
}

static void shorten(const bf16_t *k, int dim, struct twilight_key *to)
{
	uint8_t *code = (uint8_t *)(to + 1);
	float low = FLT_MAX, high = -FLT_MAX;

	for (int d = 0; d < dim; d++) {
		low = fminf(low, bf16_to_f32(k[d]));
		high = fmaxf(high, bf16_to_f32(k[d]));
	}
	to->low = low;
	to->step = fmaxf(high - low, 1e-9f) / 15;
	for (int d = 0; d < dim; d += 2) {
		uint8_t even = twilight_code(bf16_to_f32(k[d]), low, to->step);
		uint8_t odd = twilight_code(bf16_to_f32(k[d + 1]), low, to->step);

		code[d / 2] = (uint8_t)(even | odd << 4);
	}
}

static enum ar_status twilight_append_ref(const struct attn_call *call, const void *self,
					  struct ar_err *err)
{
	const struct twilight *p = self;
	const struct attn_batch *b = call->b;

	(void)err;
	if (p->estimate == TWILIGHT_EXACT)
		return AR_OK;
	for (int r = 0; r < b->rows.n_req; r++)
		for (int t = b->rows.pos0[r]; t < b->keys.len[r]; t++)
			for (int h = 0; h < b->shape.kv_heads; h++)
				shorten(call->kv.k + pieces_key(b, r, h, t), b->shape.head_dim,
					twilight_key(b, r, h, t, call->state));
	return AR_OK;
}

/* ---- lists ---- */

struct desk {
	struct top_cell *cell; /* of candidates that a head sees */
	uint16_t *head;	       /* bits of each candidate */
};

/* low * (sum of q) + step * (sum of q * code): both sums are exact products in order. */
static float short_dot(const bf16_t *q, const struct twilight_key *k, int dim)
{
	const uint8_t *code = (const uint8_t *)(k + 1);
	float sum = 0, coded = 0;

	for (int d = 0; d < dim; d++) {
		sum += bf16_to_f32(q[d]);
		coded += bf16_to_f32(q[d]) * (float)(code[d / 2] >> d % 2 * 4 & 15);
	}
	return k->low * sum + k->step * coded;
}

static float score_of(const struct attn_call *call, const struct twilight *p, int r, int kv, int t,
		      const bf16_t *q)
{
	int dim = call->b->shape.head_dim;
	float x = p->estimate == TWILIGHT_EXACT ?
			  bf16_dot(q, call->kv.k + pieces_key(call->b, r, kv, t), dim) :
			  short_dot(q, twilight_key(call->b, r, kv, t, call->state), dim);

	return isnan(x) ? -FLT_MAX : x / sqrtf((float)dim);
}

/* The scores of the n candidates that head h of list i sees.  Returns how many. */
static int find_scores(const struct attn_call *call, const struct twilight *p, int i, int h, int n,
		       struct desk *d)
{
	const struct attn_shape *s = &call->b->shape;
	const struct piece_lists *l = call->from;
	int groups = pieces_groups(s, l), r = i / groups, head = i % groups * l->heads + h;
	const bf16_t *q = call->q + (size_t)(r * s->q_heads + head) * (size_t)s->head_dim;
	int kv = head / (s->q_heads / s->kv_heads), seen = 0;

	for (int k = 0; k < n; k++) {
		int t = twilight_at(l, i, h, k);

		if (t >= 0)
			d->cell[seen++] = (struct top_cell){ (double)score_of(call, p, r, kv, t, q),
							     k };
	}
	return seen;
}

static uint64_t weight(const struct top_cell *x, double max)
{
	return (uint64_t)(expf((float)x->key - (float)max) * 0x1p40f);
}

/* The least score that is kept, of n sorted ones. */
static double least_score(const struct top_cell *x, int n, double mass)
{
	uint64_t sum = 0, goal;
	int k = 0;

	for (int i = 0; i < n; i++)
		sum += weight(&x[i], x->key);
	goal = twilight_goal(mass, sum);
	for (sum = weight(x, x->key); sum < goal && k < n - 1;)
		sum += weight(&x[++k], x->key);
	return x[k].key;
}

/* Give bit h to the candidates of list i that its head h keeps.  all: all that it sees. */
static void prune_head(const struct attn_call *call, const struct twilight *p, int i, int h, int n,
		       bool all, struct desk *d)
{
	int seen = find_scores(call, p, i, h, n, d);
	double least;

	if (!seen)
		return;
	top_sort(d->cell, seen);
	least = all ? -DBL_MAX : least_score(d->cell, seen, p->mass);
	for (int k = 0; k < seen; k++)
		if (!(d->cell[k].key < least) || (p->keep_newest && d->cell[k].at == n - 1))
			d->head[d->cell[k].at] |= (uint16_t)(1 << h);
}

/* Write list i: the candidates of *from that have a bit, as tokens. */
static void write_list(const struct piece_lists *from, const struct piece_lists *l, int i, int n,
		       const uint16_t *head)
{
	size_t at = (size_t)i * (size_t)l->stride;
	int kept = 0;

	for (int k = 0; k < n; k++)
		if (head[k]) {
			size_t piece = (size_t)i * (size_t)from->stride + (size_t)(k / from->tok);

			l->piece[at + (size_t)kept] = from->piece[piece] * from->tok +
						      k % from->tok;
			l->mask[at + (size_t)kept++] = head[k];
		}
	l->n[i] = kept;
}

static enum ar_status twilight_ref(const struct attn_call *call, const void *self,
				   const struct selection *out, struct ar_err *err)
{
	const struct twilight *p = self;
	const struct attn_batch *b = call->b;
	const struct piece_lists *from = call->from;
	int groups = pieces_groups(&b->shape, from);
	size_t most = (size_t)(from->stride * from->tok);
	struct desk d = { malloc(most * sizeof *d.cell), malloc(most * sizeof *d.head) };
	bool room = d.cell && d.head;

	for (int i = 0; room && i < b->rows.n_req * groups; i++) {
		int len = b->keys.len[i / groups], n = twilight_candidates(from, i, len);

		memset(d.head, 0, most * sizeof *d.head);
		for (int h = 0; h < from->heads; h++)
			prune_head(call, p, i, h, n, p->mass >= 1 || len < from->all_below, &d);
		write_list(from, &out->pieces, i, n, d.head);
	}
	free(d.cell);
	free(d.head);
	return room ? AR_OK : ar_nomem(err);
}

/* As if the list had every key. */
static struct selector_work twilight_work(const void *param, const struct attn_shape *s,
					  const struct selector_chunk *c)
{
	const struct twilight *p = param;
	double n = (double)c->n_tok, len = (double)(c->start + c->n_tok);
	double key = p->estimate == TWILIGHT_EXACT ? 2.0 * s->head_dim :
						     (double)twilight_key_bytes(s->head_dim);

	return (struct selector_work){ 2 * n * len * s->q_heads * s->head_dim,
				       2 * n * s->q_heads * s->head_dim + len * s->kv_heads * key,
				       .launches = 2 };
}

static const char *const estimates[] = { "int4", "exact", NULL };

#define OFF(member) offsetof(struct twilight, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "p", .type = OPT_REAL, .off = OFF(mass), .arg = "X", .def = "0.85", .max = 1,
	  .help = "keep the largest weights until they reach a share X; 1: all" },
	{ .name = "estimate", .type = OPT_ENUM, .off = OFF(estimate), .arg = "HOW",
	  .def = "int4", .choice = estimates, .help = "which keys weights are made from" },
	{ .name = "keep-newest", .type = OPT_FLAG, .off = OFF(keep_newest),
	  .help = "keep the row's own key, if its list has it" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "dense/decode=streaming,recent=600,page=16/prune=twilight,p=%", "0.8", "0.7995",
	  "0.8005", 0.0005 },
	{ "dense/decode=oracle,budget=90/prune=twilight,estimate=exact,keep-newest=1,p=%", "0.9",
	  "0.8995", "0.9005", 0.0005 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "dense/decode=streaming,recent=5000/prune=twilight,p=%", { "0", "0.5", "0.9", "1" },
	  false, false },
	{ "dense/decode=oracle,budget=5000/prune=twilight,estimate=exact,keep-newest=1,p=%",
	  { "0", "0.5", "0.9", "1" }, false, true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_twilight;
const struct selector selector_twilight = {
	.version = AR_SELECTOR_VERSION,
	.name = "twilight",
	.title = "the fewest tokens of a list that have most of the attention, for each query head",
	.origin = "Twilight (2025)",
	.params = params,
	.param_size = sizeof(struct twilight),
	.gives = SHAPE_PIECES,
	.prunes = true,
	.pieces = twilight_pieces,
	.state_bytes = twilight_state_bytes,
	.append_ref = twilight_append_ref,
	.work = twilight_work,
	.ref = twilight_ref,
	.band = bands,
	.order = orders,
	.append = HAVE_CUDA ? twilight_append : NULL,
	.work_bytes = HAVE_CUDA ? twilight_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? twilight_enqueue : NULL,
};
