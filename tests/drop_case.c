/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/drop_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/selector_case.h"
#include "tests/tap.h"
#include "traces/capture/capture.h"

struct drop_kept drop_kept_new(const struct batch_case *c)
{
	size_t n = (size_t)c->b.rows.n_row + 1, n_req = (size_t)c->n_seq;
	struct drop_kept x = { malloc(n), malloc(n_req * sizeof *x.n_keep),
			       malloc(n * sizeof *x.index) };

	if (!x.keep || !x.n_keep || !x.index)
		bail_out("out of memory");
	return x;
}

void drop_kept_free(struct drop_kept *x)
{
	free(x->keep);
	free(x->n_keep);
	free(x->index);
}

enum ar_status drop_case_try(const struct batch_case *c, const char *name, const void *self,
			     int n_step, const struct drop_kept *out, struct ar_err *err)
{
	struct drop d = { .dropper = dropper_find(name), .self = (void *)(uintptr_t)self };
	struct attn_call at = { .b = &c->b, .q = c->q, .kv = c->kv };
	int32_t chunk[8];

	for (int r = 0; r < c->n_seq; r++)
		chunk[r] = attn_n_row(&c->b.rows, r);
	return drop_ref(&d, &(struct drop_call){ .at = &at, .chunk = chunk, .n_step = n_step }, out,
			err);
}

struct drop_kept drop_case(const struct batch_case *c, const char *name, const void *self)
{
	struct drop_kept x = drop_kept_new(c);
	struct ar_err err;

	if (drop_case_try(c, name, self, c->b.rows.n_row, &x, &err))
		bail_out("%s", err.msg);
	return x;
}

struct drop *drop_case_open(const char *text, const char *value)
{
	struct model m = { 0 };
	char spelt[256];
	struct drop *d;
	struct ar_err err;

	selector_text(spelt, sizeof spelt, text, value);
	if (model_set_layers(&m, 1, &(struct layer_spec){ .q_heads = 8 }, &err) ||
	    drop_parse(&d, spelt, &err) || drop_open(d, &m, &err))
		bail_out("%s: %s", spelt, err.msg);
	model_release(&m);
	return d;
}

struct drop_kept drop_case_band(const struct batch_case *c, const char *text, const char *value)
{
	struct drop *d = drop_case_open(text, value);
	struct drop_kept x = drop_case(c, d->dropper->name, d->self);

	drop_free(d);
	return x;
}

const char *drop_ranges(const int32_t *v, int n)
{
	static char text[2][256];
	static int turn;
	char *out = text[turn ^= 1];
	size_t len = 0;

	*out = 0;
	for (int i = 0, k; i < n && len < sizeof *text; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1; k++)
			;
		len += (size_t)snprintf(out + len, sizeof *text - len, "%s%d", i ? " " : "", v[i]);
		if (k > i + 1 && len < sizeof *text)
			len += (size_t)snprintf(out + len, sizeof *text - len, "-%d", v[k - 1]);
	}
	return out;
}

const char *drop_case_rows(const struct batch_case *c, const char *name, const void *self)
{
	struct drop_kept x = drop_case(c, name, self);
	const char *text = drop_ranges(x.index, x.n_keep[0]);

	drop_kept_free(&x);
	return text;
}

const char *drop_numbers(const float *v, int n)
{
	static char text[512];
	size_t len = 0;

	for (int i = 0; i < n && len < sizeof text; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%.4f", i ? " " : "",
					(double)v[i]);
	return text;
}

int drop_share_faults(const struct uniprefill *p, const double *share, int from, int len,
		      const uint8_t *keep, double near)
{
	int n = (len + (int)p->block - 1) / (int)p->block, bad = 0;

	for (int i = from; i < len; i++) {
		double before = 0, ties = 0, own = share[i / p->block];
		bool forced = i < p->sinks || i >= len - p->last_q;

		for (int j = 0; j < n; j++) {
			before += share[j] > own * (1 + near) ? share[j] : 0;
			ties += fabs(share[j] - own) <= own * near ? share[j] : 0;
		}
		if (forced || before + ties - own <= p->p - near)
			bad += !keep[i - from];
		else if (before > p->p + near)
			bad += keep[i - from];
	}
	return bad;
}

/* ---- a second implementation of UniPrefill's selection, in double ---- */

/* bf16, rounded to nearest even. */
static double brief(double x)
{
	int e;
	double m = frexp(x, &e);

	return ldexp(rint(m * 256) / 256, e);
}

static double key_dot(const struct batch_case *c, int r, int row, int h, int key)
{
	const struct attn_shape *s = &c->b.shape;
	int tok = s->page_tok, dim = s->head_dim, kv = h / (s->q_heads / s->kv_heads);
	const bf16_t *k =
		c->kv.k +
		((c->page[c->page0[r] + key / tok] * s->kv_heads + kv) * tok + key % tok) * dim;
	double sum = 0;

	for (int d = 0; d < dim; d++)
		sum += (double)bf16_to_f32(c->q[(row * s->q_heads + h) * dim + d]) *
		       (double)bf16_to_f32(k[d]);
	return sum;
}

void drop_plain_shares(const struct batch_case *c, const struct uniprefill *p, int r, double *share)
{
	bool round = p->rounding == ROUNDING_BF16;
	int len = c->end[r], n = (len + (int)p->block - 1) / (int)p->block;
	double *x = calloc((size_t)len, sizeof *x), *w = calloc((size_t)len, sizeof *w), all = 0;

	memset(share, 0, (size_t)n * sizeof *share);
	for (int h = 0; h < c->b.shape.q_heads; h++) {
		memset(w, 0, (size_t)len * sizeof *w);
		for (int i = len - (int)p->last_q; i < len; i++) {
			double max = -INFINITY, sum = 0;

			for (int t = 0; t <= i; t++) {
				x[t] = key_dot(c, r, c->row0[r] + i, h, t);
				x[t] = (round ? brief(x[t]) : x[t]) / sqrt(c->b.shape.head_dim);
				max = fmax(max, x[t]);
			}
			for (int t = 0; t <= i; t++)
				sum += x[t] = exp(x[t] - max);
			for (int t = 0; t <= i; t++)
				w[t] += x[t] / sum;
		}
		for (int t = 0; t < len; t++)
			share[t / p->block] += round ? brief(w[t]) : w[t];
	}
	for (int i = 0; i < n; i++)
		all += share[i] = round ? brief(share[i]) : share[i];
	for (int i = 0; i < n; i++)
		share[i] = round ? brief(share[i] / all) : share[i] / all;
	free(x);
	free(w);
}

int drop_plain_faults(const struct batch_case *c, const struct uniprefill *p,
		      const struct drop_kept *got, double near)
{
	double *share = malloc((size_t)(c->end[0] / p->block + 1) * sizeof *share);
	int bad;

	if (!share)
		bail_out("out of memory");
	drop_plain_shares(c, p, 0, share);
	bad = drop_share_faults(p, share, 0, c->end[0], got->keep, near);
	free(share);
	return bad;
}

/* ---- captures ---- */

/* The names in ATTNREPLAY_TEST_CAPTURES, separated by blanks; else the sample. */
static const char *capture_name(int i, char *buf, size_t size)
{
	const char *list = getenv("ATTNREPLAY_TEST_CAPTURES"), *data = getenv("ATTNREPLAY_DATA");
	size_t n;

	if (!list) {
		snprintf(buf, size, "%s/traces/samples/niah-2k.arc", data ? data : ".");
		return i ? NULL : buf;
	}
	for (; list += strspn(list, " "), n = strcspn(list, " "), n && i; i--)
		list += n;
	snprintf(buf, size, "%.*s", (int)n, list);
	return n ? buf : NULL;
}

int drop_captures(void)
{
	char name[512];
	int n = 0;

	while (capture_name(n, name, sizeof name))
		n++;
	return n;
}

static void read_heads(struct capture *in, int layer, enum capture_tensor t, int n, bf16_t *to)
{
	struct ar_err err;

	if (!to || capture_read(in, layer, t, 0, n, to, &err))
		bail_out("a capture: %s", to ? err.msg : "out of memory");
}

bool drop_case_capture(struct batch_case *c, int i, int layer, int most)
{
	enum { PAGE = 128 };
	char name[512];
	struct rng rng = { 1 };
	struct capture *in;
	struct ar_err err;
	bool there;

	capture_name(i, name, sizeof name);
	if (capture_open(&in, name, &err))
		bail_out("%s", err.msg);
	there = layer < capture_info(in)->n_layers;
	if (there) {
		const struct capture_info *x = capture_info(in);
		int n = most ? most : (int)x->n_tok, ctx = 0, dim = x->head_dim;
		size_t row = (size_t)dim * sizeof(bf16_t);
		bf16_t *q = malloc((size_t)(x->q_heads * n) * row);
		bf16_t *k = malloc((size_t)(x->kv_heads * n) * row);

		read_heads(in, layer, CAPTURE_Q, n, q);
		read_heads(in, layer, CAPTURE_K, n, k);
		case_chunks(c, &rng, FILL_NORMAL,
			    (struct attn_shape){ x->q_heads, x->kv_heads, dim, PAGE }, 1, &ctx, &n);
		for (int t = 0; t < n; t++) {
			for (int h = 0; h < x->q_heads; h++)
				memcpy(c->q + (t * x->q_heads + h) * dim, q + (h * n + t) * dim,
				       row);
			for (int h = 0; h < x->kv_heads; h++)
				memcpy(c->kv.k + ((c->page[t / PAGE] * x->kv_heads + h) * PAGE +
						  t % PAGE) *
							 dim,
				       k + (h * n + t) * dim, row);
		}
		free(q);
		free(k);
	}
	capture_close(in);
	return there;
}

struct uniprefill_self drop_published(int k)
{
	static const double p[] = { 0.6, 0.9, 0.99 };

	return (struct uniprefill_self){ .rule = { .p = p[k % 3],
						   .block = 64,
						   .last_q = 128,
						   .sinks = 128,
						   .min_tokens = 256,
						   .rounding = k / 3 } };
}

const char *drop_text(const struct batch_case *c, const struct uniprefill *p,
		      const struct drop_kept *got)
{
	static char text[160];

	snprintf(text, sizeof text, "a capture of %d tokens, p %g%s: %d stay", c->b.rows.n_row,
		 p->p, p->rounding == ROUNDING_BF16 ? ", rounded" : "", got->n_keep[0]);
	return text;
}
