/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/drop_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/tap.h"

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
	return drop_ref(&d, &(struct drop_call){ &at, chunk, n_step }, out, err);
}

struct drop_kept drop_case(const struct batch_case *c, const char *name, const void *self)
{
	struct drop_kept x = drop_kept_new(c);
	struct ar_err err;

	if (drop_case_try(c, name, self, c->b.rows.n_row, &x, &err))
		bail_out("%s", err.msg);
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
