/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/dense_as.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/jsonval.h"
#include "base/number.h"
#include "base/text.h"

enum { FILE_MAX = 1 << 20 };

static const double factor_min = 0.1, factor_max = 100;

/* ---- loading ---- */

static bool in_range(double factor)
{
	return factor >= factor_min && factor <= factor_max;
}

static enum ar_status parse_factors(struct dense_as *d, const char *value, struct ar_err *err)
{
	char first[64];
	const char *comma = strchr(value, ',');
	double prefill, decode;
	int n = comma ? (int)(comma - value) : (int)strlen(value);
	bool good = snprintf(first, sizeof first, "%.*s", n, value) < (int)sizeof first &&
		    num_real(first, &prefill) && num_real(comma ? comma + 1 : first, &decode);

	if (!good || !in_range(prefill) || !in_range(decode))
		return ar_fail(err, AR_USAGE,
			       "dense-as-engine '%s': no such file; want a file of "
			       "contrib/dense_as_engine.py, or one or two factors from %g to %g, "
			       "such as 1.35,1.44",
			       value, factor_min, factor_max);
	d->prefill = (struct dense_as_curve){ 1, { { 1, prefill } } };
	d->decode = (struct dense_as_curve){ 1, { { 1, decode } } };
	return AR_OK;
}

static enum ar_status get_curve(struct dense_as_curve *c, const cJSON *o, const char *key,
				const char *path, struct ar_err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key), *pair;
	int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
	double before = 0;

	if (n < 1 || n > DENSE_AS_POINTS_MAX)
		return ar_fail(err, AR_DATA,
			       "%s: '%s': want an array of 1 to %d pairs [keys, factor]", path, key,
			       DENSE_AS_POINTS_MAX);
	cJSON_ArrayForEach(pair, list) {
		double keys, factor;

		if (!cJSON_IsArray(pair) || cJSON_GetArraySize(pair) != 2 ||
		    !json_real(pair->child, 1, (double)JSON_INT_MAX, &keys) || keys <= before ||
		    !json_real(pair->child->next, factor_min, factor_max, &factor))
			return ar_fail(err, AR_DATA,
				       "%s: '%s': pair %d: want [keys, factor], keys from 1 and "
				       "above those of the pair before, factor from %g to %g",
				       path, key, c->n + 1, factor_min, factor_max);
		c->point[c->n].keys = before = keys;
		c->point[c->n++].factor = factor;
	}
	return AR_OK;
}

static enum ar_status parse_file(struct dense_as *d, const char *text, const char *path,
				 struct ar_err *err)
{
	const char *about;
	cJSON *o;
	enum ar_status st = json_parse_file(&o, text, path, err);

	if (st)
		return st;
	d->file = true;
	about = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "about"));
	snprintf(d->about, sizeof d->about, "%s", about ? about : "");
	st = get_curve(&d->prefill, o, "prefill", path, err);
	if (!st)
		st = get_curve(&d->decode, o, "decode", path, err);
	cJSON_Delete(o);
	return st;
}

enum ar_status dense_as_load(struct dense_as *d, const char *value, struct ar_err *err)
{
	struct stat s;
	char *text;
	enum ar_status st;

	*d = (struct dense_as){ 0 };
	if (stat(value, &s))
		return parse_factors(d, value, err);
	st = text_read(&text, value, FILE_MAX, err);
	if (st)
		return st;
	st = parse_file(d, text, value, err);
	free(text);
	return st;
}

/* ---- costs ---- */

double dense_as_factor(const struct dense_as_curve *c, double keys)
{
	int i = 0;
	double a, b;

	while (i < c->n && c->point[i].keys <= keys)
		i++;
	if (!i)
		return c->point[0].factor;
	if (i == c->n)
		return c->point[i - 1].factor;
	/* Not log(b) - log(a): it can be 0 for points that differ, and would divide. */
	a = c->point[i - 1].keys;
	b = c->point[i].keys;
	return c->point[i - 1].factor +
	       (c->point[i].factor - c->point[i - 1].factor) * log(keys / a) / log(b / a);
}

/* Return cost with factor times phase_ns in place of phase_ns, both scaled to all layers. */
static int64_t replaced(int64_t cost, int64_t phase_ns, double factor, int64_t n_layers,
			int64_t n_run_layers)
{
	double more = round((factor - 1) * (double)phase_ns), size = fabs(more);
	int64_t all = num_mul(size < 0x1p63 ? (int64_t)size : INT64_MAX, n_layers);
	int64_t by = all < INT64_MAX ? all / n_run_layers : all;

	if (more >= 0)
		return num_add(cost, by);
	return cost > by ? cost - by : 0;
}

int64_t dense_as_cost(const struct dense_as *d, const struct batch *b, const struct iter_cost *c,
		      int64_t n_layers, int64_t n_run_layers)
{
	struct batch_shape shape = batch_shape(b);
	const int64_t *f = shape.feature;
	int64_t cost = c->cost_ns;

	if (f[BATCH_PREFILL_TOK])
		cost = replaced(cost, c->phase_ns[PHASE_ATTEND],
				dense_as_factor(&d->prefill, (double)f[BATCH_PREFILL_PAIRS] /
								     (double)f[BATCH_PREFILL_TOK]),
				n_layers, n_run_layers);
	if (f[BATCH_DECODES])
		cost = replaced(cost, c->phase_ns[PHASE_DECODE],
				dense_as_factor(&d->decode, (double)f[BATCH_DECODE_CONTEXT]),
				n_layers, n_run_layers);
	return cost;
}

static void set_dense_as(const void *self, const struct batch *b, struct iter_cost *c)
{
	const struct dense_as_run *r = self;

	c->cost_ns = dense_as_cost(&r->factors, b, c, r->n_layers, r->n_run_layers);
}

struct cost cost_dense_as(const struct dense_as_run *r)
{
	return (struct cost){ set_dense_as, r };
}
