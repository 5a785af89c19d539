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
#include "replay/cost/decode_walk.h"

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

static void get_text(char *out, size_t size, const cJSON *o, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));

	snprintf(out, size, "%s", text ? text : "");
}

static enum ar_status get_mixed(struct dense_as *d, const cJSON *o, const char *path,
				struct ar_err *err)
{
	const cJSON *mixed = cJSON_GetObjectItemCaseSensitive(o, "mixed");
	struct {
		const char *key;
		double max, *out;
	} const member[] = { { "prefill", factor_max, &d->mixed.prefill },
			     { "decode", factor_max, &d->mixed.decode },
			     { "walk_us", factor_max, &d->mixed.walk_us },
			     { "fill_rows", 1e6, &d->mixed.fill_rows } };

	d->has_mixed = mixed;
	for (size_t i = 0; mixed && i < sizeof member / sizeof *member; i++)
		if (!json_real(cJSON_GetObjectItemCaseSensitive(mixed, member[i].key), 0,
			       member[i].max, member[i].out))
			return ar_fail(err, AR_DATA,
				       "%s: 'mixed': '%s': want a number from 0 to %g", path,
				       member[i].key, member[i].max);
	return AR_OK;
}

static enum ar_status parse_file(struct dense_as *d, const char *text, const char *path,
				 struct ar_err *err)
{
	cJSON *o;
	enum ar_status st = json_parse_file(&o, text, path, err);

	if (st)
		return st;
	d->file = true;
	get_text(d->about, sizeof d->about, o, "about");
	get_text(d->attention, sizeof d->attention, o, "attention");
	st = get_curve(&d->prefill, o, "prefill", path, err);
	if (!st)
		st = get_curve(&d->decode, o, "decode", path, err);
	if (!st)
		st = get_mixed(d, o, path, err);
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

/* Return cost with more ns, of the layers that the phases cover, scaled to all layers. */
static int64_t added(int64_t cost, double more, const struct dense_as_run *r)
{
	double size = fabs(round(more));
	int64_t all = num_mul(size < 0x1p63 ? (int64_t)size : INT64_MAX, r->n_layers);
	int64_t by = all < INT64_MAX ? all / r->n_run_layers : all;

	if (more >= 0)
		return num_add(cost, by);
	return cost > by ? cost - by : 0;
}

/* Set the time of a launch for chunks and decodes.  keys: that one thread block walks; attend,
 * decode: what their own launches take in an engine, which is in the cost. */
static void set_mixed(const struct dense_as_run *r, double keys, double attend, double decode,
		      struct iter_cost *c)
{
	const struct dense_as_mixed *m = &r->factors.mixed;
	double work = m->prefill * attend + m->decode * decode;
	double walk = m->walk_us * keys * (double)r->n_walk_layers; /* us for 1,000: ns for one */

	c->cost_ns = added(c->cost_ns, work - attend - decode, r);
	if (walk <= work)
		return;
	c->phase_ns[PHASE_WALK] = llround(walk - work);
	c->cost_ns = added(c->cost_ns, walk - work, r);
}

void dense_as_set_shape(const struct dense_as_run *r, const struct batch_shape *s, double walk_keys,
			struct iter_cost *c)
{
	const struct dense_as *d = &r->factors;
	const int64_t *f = s->feature;
	double attend = (double)c->phase_ns[PHASE_ATTEND];
	double decode = (double)c->phase_ns[PHASE_DECODE];
	double attend_more = 0, decode_more = 0;

	if (f[BATCH_PREFILL_TOK])
		attend_more = attend *
			      (dense_as_factor(&d->prefill, (double)f[BATCH_PREFILL_PAIRS] /
								    (double)f[BATCH_PREFILL_TOK]) -
			       1);
	if (f[BATCH_DECODES])
		decode_more = decode *
			      (dense_as_factor(&d->decode, (double)f[BATCH_DECODE_CONTEXT]) - 1);
	c->cost_ns = added(added(c->cost_ns, attend_more, r), decode_more, r);
	if (d->has_mixed && f[BATCH_PREFILL_TOK] && f[BATCH_DECODES])
		set_mixed(r, walk_keys, attend + attend_more, decode + decode_more, c);
}

void dense_as_set(const struct dense_as_run *r, const struct batch *b, struct iter_cost *c)
{
	const struct batch_shape s = batch_shape(b);

	dense_as_set_shape(r, &s, decode_walk_keys(b, r->factors.mixed.fill_rows), c);
}

static void set_dense_as(const void *self, const struct batch *b, struct iter_cost *c)
{
	dense_as_set(self, b, c);
}

struct cost cost_dense_as(const struct dense_as_run *r)
{
	return (struct cost){ set_dense_as, r };
}
