/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/rope.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "base/jsonval.h"

#define PI 3.14159265358979323846

/* Scaling of Llama 3.1.  Pairs with a wavelength long against the original context rotate
 * factor times slower.  Pairs with a short wavelength are unchanged.  Pairs in between are
 * interpolated. */
static double scale_llama3(const struct rope *r, double inv)
{
	double wavelength = 2 * PI / inv, m;

	if (wavelength < r->original_len / r->high_freq)
		return inv;
	if (wavelength > r->original_len / r->low_freq)
		return inv / r->factor;
	m = (r->original_len / wavelength - r->low_freq) / (r->high_freq - r->low_freq);
	return (1 - m) * inv / r->factor + m * inv;
}

void rope_inv_freq(const struct rope *r, int dim, float *inv)
{
	for (int k = 0; k < dim / 2; k++) {
		double x = r->theta > 0 ? pow(r->theta, -2.0 * k / dim) : 0;

		inv[k] = (float)(x > 0 && r->factor > 0 ? scale_llama3(r, x) : x);
	}
}

static const struct {
	const char *name;
	size_t off;
} scaling_keys[] = {
	{ "factor", offsetof(struct rope, factor) },
	{ "low_freq_factor", offsetof(struct rope, low_freq) },
	{ "high_freq_factor", offsetof(struct rope, high_freq) },
	{ "original_max_position_embeddings", offsetof(struct rope, original_len) },
};
#define N_SCALING_KEYS (sizeof scaling_keys / sizeof *scaling_keys)

static enum ar_status parse_llama3(struct rope *r, const cJSON *scaling, const char *path,
				   struct ar_err *err)
{
	for (size_t i = 0; i < N_SCALING_KEYS; i++) {
		const char *key = scaling_keys[i].name;
		double *x = (double *)(void *)((char *)r + scaling_keys[i].off);

		if (!json_real(cJSON_GetObjectItemCaseSensitive(scaling, key), 1e-3, 1e9, x))
			return ar_fail(err, AR_DATA,
				       "%s: llama3 rope scaling: want a positive "
				       "number as '%s'",
				       path, key);
	}
	if (!(r->high_freq > r->low_freq))
		return ar_fail(err, AR_DATA,
			       "%s: llama3 rope scaling: high_freq_factor must be "
			       "above low_freq_factor",
			       path);
	return AR_OK;
}

static const cJSON *get_type(const cJSON *scaling)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(scaling, "rope_type");

	return v ? v : cJSON_GetObjectItemCaseSensitive(scaling, "type");
}

const char *rope_type_unknown(const cJSON *scaling)
{
	static const char *const types[] = { "dynamic", "linear", "longrope", "mrope",
					     "su",	"yarn",	  NULL };
	const cJSON *type = get_type(scaling);

	for (const char *const *t = types; *t && cJSON_IsString(type); t++)
		if (!strcmp(*t, type->valuestring))
			return *t;
	return NULL;
}

enum ar_status rope_parse(struct rope *r, double theta, const cJSON *scaling, const char *path,
			  struct ar_err *err)
{
	struct rope x = { .theta = theta };
	const char *type = "default";
	const cJSON *v;

	if (scaling && !cJSON_IsNull(scaling)) {
		if (!cJSON_IsObject(scaling))
			return ar_fail(err, AR_DATA, "%s: rope scaling is no object", path);
		v = get_type(scaling);
		if (!cJSON_IsString(v))
			return ar_fail(err, AR_DATA, "%s: rope scaling has no 'rope_type'", path);
		type = v->valuestring;
		if (json_has(scaling, "rope_theta") &&
		    !json_real(cJSON_GetObjectItemCaseSensitive(scaling, "rope_theta"), 1, 1e12,
			       &x.theta))
			return ar_fail(err, AR_DATA,
				       "%s: want a number from 1 to 1e12 as "
				       "'rope_theta'",
				       path);
	}
	if (!strcmp(type, "llama3")) {
		enum ar_status st = parse_llama3(&x, scaling, path, err);

		if (st)
			return st;
	} else if (strcmp(type, "default") != 0) {
		return ar_fail(err, AR_DATA,
			       "%s: unknown rope type '%.32s'; known are default and "
			       "llama3",
			       path, type);
	}
	*r = x;
	return AR_OK;
}

cJSON *rope_scaling_json(const struct rope *r)
{
	cJSON *o = cJSON_CreateObject();
	bool done = o && cJSON_AddStringToObject(o, "rope_type", "llama3");

	for (size_t i = 0; done && i < N_SCALING_KEYS; i++) {
		const double *x =
			(const double *)(const void *)((const char *)r + scaling_keys[i].off);

		done = cJSON_AddNumberToObject(o, scaling_keys[i].name, *x);
	}
	if (done)
		return o;
	cJSON_Delete(o);
	return NULL;
}
