/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors of decodes on the device against their references, on random ragged batches: states
 * have equal bits, lists lie in the bands of the descriptors.  ATTNREPLAY_TEST_CASES sets the
 * number of batches. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/decode_case.h"
#include "tests/file.h"
#include "tests/select_gpu.h"
#include "tests/selector_case.h"
#include "tests/tap.h"

/* Lists that pass between layers. */
static const char *const passing[] = {
	"oracle,budget=40,reuse=2",
	"tidal,budget=40,dense-layers=0,reselect=0",
	"streaming,sink=8,recent=50,reuse=2",
};
enum { N_PASSING = sizeof passing / sizeof *passing };

static int n_band(void)
{
	int n = 0;

	for (int i = 0; decode_selectors[i]; i++)
		for (const struct selector_band *b = decode_selectors[i]->band; b->method; b++)
			n++;
	return n;
}

#if HAVE_CUDA
static const struct attn_shape shapes[] = {
	{ 8, 2, 64, 64 },   { 8, 2, 128, 128 }, { 4, 4, 128, 128 },
	{ 16, 1, 64, 128 }, { 6, 2, 256, 64 },
};
enum { N_SHAPE = sizeof shapes / sizeof *shapes, MOST_REQ = 5 };

static void make_case(struct batch_case *c, int k)
{
	static const int edge[] = { 1, 3, 4, 5, 63, 64, 65, 127, 128, 129, 10000 };
	struct rng rng = { 500 + (uint64_t)k };
	int n = select_draw(&rng, 1, MOST_REQ), len[MOST_REQ];

	for (int r = 0; r < n; r++)
		len[r] = r ? select_draw(&rng, 1, k % 4 ? 900 : 5000) : edge[k % 11];
	case_make(c, &rng, k % 5 ? FILL_NORMAL : FILL_BLOCKS, shapes[k % N_SHAPE], n, len);
	decode_cut(c, true);
}

/* A case on the device. */
struct device {
	struct kv_cache kv;
	void *state, *prune_state;
	size_t state_bytes, prune_bytes;
};

static void no_phase(void *ctx, int layer, enum phase phase)
{
	(void)ctx, (void)layer, (void)phase;
}

/* Show the batch of c to the selector's state; next: as in attn_call. */
static void append(const struct decode_case *x, const struct batch_case *c, const struct device *d,
		   bool next)
{
	const struct attn_batch b = gpu_batch(&c->b);
	struct attn_call call = {
		.b = &b, .kv = d->kv, .state = d->state, .prune_state = d->prune_state, .next = next
	};
	struct ar_err err;

	gpu_must(method_append(x->part, &call, no_phase, NULL, &err), &err);
}

/* Cut all but the last token of each sequence, and the only one of others. */
static void cut_before(struct batch_case *c)
{
	int ctx[MOST_REQ] = { 0 }, rows[MOST_REQ];

	for (int r = 0; r < c->n_seq; r++)
		rows[r] = c->len[r] > 1 ? c->len[r] - 1 : 1;
	case_cut(c, ctx, rows);
}

/* The room of n pieces on the device, as l has it. */
static struct piece_lists gpu_room(const struct piece_lists *l, size_t n)
{
	struct piece_lists to = *l;
	size_t room = n * (size_t)l->stride;

	to.n = gpu_new(n * sizeof *l->n, 0xff);
	to.piece = gpu_new(room * sizeof *l->piece, 0xff);
	to.mask = l->mask ? gpu_new(room * sizeof *l->mask, 0xff) : NULL;
	return to;
}

/* The memory of a selector. */
static void *gpu_work(const struct method_part *p, const struct batch_case *c)
{
	const struct attn_limits limits = select_limits(&c->b);

	return gpu_new(p->selector->work_bytes ?
			       p->selector->work_bytes(p->self, &c->b.shape, &limits) :
			       0,
		       0xff);
}

/* Choose for the batch of c; *got: lists like x's, which release_lists() frees. */
static void choose(const struct decode_case *x, const struct batch_case *c, const struct device *d,
		   struct piece_lists *got)
{
	const struct method_part *p = x->part, *prune = p->prune;
	const struct piece_lists *l = &x->sel.chosen.pieces;
	const struct attn_batch b = gpu_batch(&c->b);
	size_t n = (size_t)(c->b.rows.n_req * (c->b.shape.q_heads / l->heads));
	size_t room = n * (size_t)l->stride;
	struct selection out = { .pieces = gpu_room(l, n) };
	struct piece_lists from = prune ? gpu_room(&x->sel.from, n) : out.pieces;
	struct attn_call call = { .b = &b,
				  .q = gpu_copy(c->q, c->q_len * sizeof *c->q),
				  .kv = d->kv,
				  .state = d->state,
				  .prune_state = d->prune_state,
				  .work = gpu_work(p, c) };
	struct ar_err err;

	gpu_must(p->selector->enqueue(&call, p->self, &(struct selection){ .pieces = from }, &err),
		 &err);
	if (prune) {
		call = method_prune_call(&call, &from);
		call.work = gpu_work(prune, c);
		gpu_must(prune->selector->enqueue(&call, prune->self, &out, &err), &err);
	}
	*got = *l;
	got->n = malloc(n * sizeof *l->n);
	got->piece = malloc(room * sizeof *l->piece);
	got->mask = l->mask ? malloc(room * sizeof *l->mask) : NULL;
	gpu_read(got->n, out.pieces.n, n * sizeof *l->n);
	gpu_read(got->piece, out.pieces.piece, room * sizeof *l->piece);
	if (l->mask)
		gpu_read(got->mask, out.pieces.mask, room * sizeof *l->mask);
}

static void release_lists(struct piece_lists *l)
{
	free(l->n);
	free(l->piece);
	free(l->mask);
}

/* Mark what each head sees: [request][q_heads][len]. */
static char *seen(const struct batch_case *c, const struct piece_lists *l, size_t *n)
{
	const struct attn_shape *s = &c->b.shape;
	char *on = calloc(c->at[c->n_seq], (size_t)s->q_heads), *row = on;

	for (int r = 0; r < c->n_seq; r++)
		for (int h = 0; h < s->q_heads; h++, row += c->len[r]) {
			int list = r * (s->q_heads / l->heads) + h / l->heads;

			for (int i = 0; i < l->n[list] && i < l->stride; i++) {
				size_t at = (size_t)list * (size_t)l->stride + (size_t)i;

				for (int t = l->piece[at] * l->tok, k = 0; k < l->tok; k++, t++)
					if (t >= 0 && t < c->len[r])
						row[t] = !l->mask ||
							 l->mask[at] >> h % l->heads & 1;
			}
		}
	*n = (size_t)(row - on);
	return on;
}

/* What the reference keeps with this value. */
static char *kept(const struct selector_band *rule, const char *value, struct batch_case *c,
		  struct decode_case *x, size_t *n)
{
	char text[160];

	selector_text(text, sizeof text, rule->method + strlen("dense/decode="), value);
	decode_choose(x, text, c);
	return seen(c, &x->sel.chosen.pieces, n);
}

static bool same_bytes(const void *device, const void *host, size_t n)
{
	char *got = malloc(n + 1);
	bool same;

	gpu_read(got, device, n);
	same = !n || !memcmp(got, host, n);
	free(got);
	return same;
}

/* Return whether the case is in the band; *state: whether the states have equal bits. */
static bool agrees(const struct selector_band *rule, int k, bool *state)
{
	struct batch_case c;
	struct decode_case x, other;
	struct device d;
	struct piece_lists l;
	char *want, *got, *strict, *loose;
	size_t n, out = 0;

	make_case(&c, k);
	want = kept(rule, rule->value, &c, &x, &n);
	strict = rule->strict ? kept(rule, rule->strict, &c, &other, &n) : NULL;
	if (strict)
		decode_release(&other);
	loose = rule->loose ? kept(rule, rule->loose, &c, &other, &n) : NULL;
	if (loose)
		decode_release(&other);
	d.state_bytes = (size_t)c.n_page * method_state_bytes(x.part, &c.b.shape);
	d.kv = gpu_kv(&c.kv, c.kv_len);
	d.state = gpu_new(d.state_bytes, 0);
	d.prune_bytes = x.part->prune ?
				(size_t)c.n_page * method_state_bytes(x.part->prune, &c.b.shape) :
				0;
	d.prune_state = gpu_new(d.prune_bytes, 0);
	cut_before(&c);
	append(&x, &c, &d, false);
	decode_cut(&c, false);
	append(&x, &c, &d, k % 3);
	choose(&x, &c, &d, &l);
	got = seen(&c, &l, &n);
	for (size_t i = 0; i < n; i++)
		out += strict ? (got[i] ? !strict[i] && !loose[i] && !want[i] :
					  strict[i] && loose[i] && want[i]) :
				got[i] != want[i];
	*state = same_bytes(d.state, x.state, d.state_bytes) &&
		 same_bytes(d.prune_state, x.prune_state, d.prune_bytes);
	if ((double)out > rule->slack * (double)n)
		diag("case %d: %zu of %zu cells", k, out, n);
	free(want);
	free(got);
	free(strict);
	free(loose);
	release_lists(&l);
	decode_release(&x);
	gpu_free_all();
	case_release(&c);
	return (double)out <= rule->slack * (double)n;
}

/* ---- lists that pass between layers ---- */

/* The farthest output of a layer from its reference.  d: device memory of the call. */
static float off_by(const struct method_part *p, const struct batch_case *c,
		    const struct attn_call *host, const struct attn_call *d)
{
	bf16_t *want = malloc(c->q_len * sizeof *want), *got = malloc(c->q_len * sizeof *got);
	struct attn_call own = *host, dev = *d;
	struct ar_err err;
	float most = 0;

	own.out = want;
	gpu_must(method_ref(p, &own, NULL, &err), &err);
	gpu_must(method_enqueue(p, &dev, no_phase, NULL, &err), &err);
	gpu_read(got, dev.out, c->q_len * sizeof *got);
	for (size_t i = 0; i < c->q_len; i++) {
		float x = fabsf(bf16_to_f32(want[i]) - bf16_to_f32(got[i]));

		most = x > most || isnan(x) ? x : most;
	}
	free(want);
	free(got);
	return most;
}

/* A layer chooses, and one with other queries takes its lists. */
static float pass_lists(const char *text, int k)
{
	struct batch_case c;
	struct decode_case x;
	struct attn_batch b;
	struct attn_limits limits;
	struct attn_call host, dev;
	struct ar_err err;
	float off;

	make_case(&c, k);
	decode_choose(&x, text, &c);
	gpu_must(method_open(x.m->later,
			     &(struct selector_env){ .shape = c.b.shape, .n_layers = 2 }, &err),
		 &err);
	limits = select_limits(&c.b);
	b = gpu_batch(&c.b);
	host = (struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .lists = x.lists };
	dev = host;
	dev.b = &b;
	dev.kv = gpu_kv(&c.kv, c.kv_len);
	dev.q = gpu_copy(c.q, c.q_len * sizeof *c.q);
	dev.out = gpu_new(c.q_len * sizeof *c.q, 0xff);
	dev.work = gpu_new(method_work_bytes(x.part, &c.b.shape, &limits), 0);
	dev.lists = gpu_new(method_lists_bytes(x.part, &c.b.shape, &limits), 0xff);
	off = off_by(x.part, &c, &host, &dev);
	for (size_t i = 0; i < c.q_len; i++)
		c.q[i] ^= 0x8000;
	dev.q = gpu_copy(c.q, c.q_len * sizeof *c.q);
	off = fmaxf(off, off_by(&x.m->later->part[ROW_DECODE], &c, &host, &dev));
	decode_release(&x);
	gpu_free_all();
	case_release(&c);
	return off;
}

static void test_passing(int n)
{
	for (int i = 0; i < N_PASSING; i++) {
		float most = 0;

		for (int k = 0; k < n; k++)
			most = fmaxf(most, pass_lists(passing[i], k));
		ok(most < 0.03F, "%s: both layers are off by %g", passing[i], (double)most);
	}
}

static void run_all(void)
{
	static const char scores[] = "0.3 0.7 0.1 0.9\n";
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 33);

	file_write("agree.duo", scores, strlen(scores));
	for (int i = 0; decode_selectors[i]; i++)
		for (const struct selector_band *b = decode_selectors[i]->band; b->method; b++) {
			int good = 0, states = 0;

			for (int k = 0; k < n; k++) {
				bool state;

				good += agrees(b, k, &state);
				states += state;
			}
			is_int(good, n, "%s: lists", b->method);
			is_int(states, n, "... and states");
		}
	unlink("agree.duo");
	test_passing(n);
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(2 * n_band() + N_PASSING, run_all);
}
