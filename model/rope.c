/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/rope.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "base/jsonval.h"
#include "model/arch.h"

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
	if (r->high_freq <= r->low_freq) /* equal: nothing is in between */
		return inv;
	m = (r->original_len / wavelength - r->low_freq) / (r->high_freq - r->low_freq);
	return (1 - m) * inv / r->factor + m * inv;
}

/* The pair that turns n times within the original context. */
static double pair_of(const struct rope *r, int dim, double n)
{
	return dim * log(r->original_len / (n * 2 * PI)) / (2 * log(r->theta));
}

/* YaRN: pairs that turn often within the original context are unchanged; pairs that hardly turn
 * rotate factor times slower.  share goes from 0 to 1 from the pair low to the pair high. */
static double scale_yarn(const struct rope *r, int dim, int k, double inv)
{
	double low = pair_of(r, dim, r->beta_fast), high = pair_of(r, dim, r->beta_slow), share;

	if (r->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, dim - 1);
	share = (k - low) / (high != low ? high - low : 0.001);
	share = fmin(fmax(share, 0), 1);
	return inv / r->factor * share + inv * (1 - share);
}

static double scale(const struct rope *r, int dim, int k, double inv)
{
	switch (r->type) {
	case ROPE_LINEAR: return inv / r->factor;
	case ROPE_LLAMA3: return scale_llama3(r, inv);
	case ROPE_YARN: return scale_yarn(r, dim, k, inv);
	default: return inv;
	}
}

void rope_inv_freq(const struct rope *r, int dim, float *inv)
{
	for (int k = 0; k < dim / 2; k++)
		inv[k] = r->theta > 0 ? (float)scale(r, dim, k, pow(r->theta, -2.0 * k / dim)) : 0;
}

double rope_sharpness(double factor, double mscale)
{
	return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

double rope_attention_factor(const struct rope *r)
{
	if (r->type != ROPE_YARN)
		return 1;
	if (r->attention_factor > 0)
		return r->attention_factor;
	if (r->mscale > 0 && r->mscale_all_dim > 0)
		return rope_sharpness(r->factor, r->mscale) /
		       rope_sharpness(r->factor, r->mscale_all_dim);
	return rope_sharpness(r->factor, 1);
}

int rope_dim(const struct rope *r, int head_dim)
{
	return r->share > 0 ? (int)(head_dim * r->share) : head_dim;
}

enum ar_status rope_check_dim(const struct rope *r, int head_dim, const char *path,
			      struct ar_err *err)
{
	int dim = rope_dim(r, head_dim);

	return dim > 0 && dim % 2 == 0 ?
		       AR_OK :
		       ar_fail(err, AR_DATA,
			       "%s: partial_rotary_factor %g rotates %d channels of a head of %d; "
			       "want an even number of them",
			       path, r->share, dim, head_dim);
}

const char *rope_besides_angles(const struct rope *r)
{
	if (r->share > 0)
		return "partial rotary embeddings";
	return rope_attention_factor(r) == 1 ? NULL : "the attention factor of rope type 'yarn'";
}

static const char *const type_names[] = { "default", "linear", "llama3", "yarn", NULL };

const char *rope_type_name(const struct rope *r)
{
	return type_names[r->type];
}

/* The members of scaling.  types: bits of enum rope_type.  def: the value if the key is missing;
 * -1: the key is required. */
static const struct {
	const char *name;
	size_t off;
	unsigned types;
	double def;
} scaling_keys[] = {
#define KEY(name, member, types, def) \
	{ \
		name, offsetof(struct rope, member), types, def \
	}
	KEY("factor", factor, 1 << ROPE_LINEAR | 1 << ROPE_LLAMA3 | 1 << ROPE_YARN, -1),
	KEY("low_freq_factor", low_freq, 1 << ROPE_LLAMA3, -1),
	KEY("high_freq_factor", high_freq, 1 << ROPE_LLAMA3, -1),
	KEY("original_max_position_embeddings", original_len, 1 << ROPE_LLAMA3 | 1 << ROPE_YARN,
	    -1),
	KEY("beta_fast", beta_fast, 1 << ROPE_YARN, 32),
	KEY("beta_slow", beta_slow, 1 << ROPE_YARN, 1),
	KEY("attention_factor", attention_factor, 1 << ROPE_YARN, 0),
	KEY("mscale", mscale, 1 << ROPE_YARN, 0),
	KEY("mscale_all_dim", mscale_all_dim, 1 << ROPE_YARN, 0),
#undef KEY
};
#define N_SCALING_KEYS (sizeof scaling_keys / sizeof *scaling_keys)

static double *member(struct rope *r, size_t i)
{
	return (double *)(void *)((char *)r + scaling_keys[i].off);
}

static double member_of(const struct rope *r, size_t i)
{
	return *(const double *)(const void *)((const char *)r + scaling_keys[i].off);
}

static enum ar_status parse_truncate(struct rope *r, const cJSON *scaling, const char *path,
				     struct ar_err *err)
{
	const cJSON *v = config_get(scaling, "truncate");

	r->truncate = !v || cJSON_IsTrue(v);
	return !v || cJSON_IsBool(v) ? AR_OK :
				       ar_fail(err, AR_DATA,
					       "%s: yarn rope scaling: want true or false as "
					       "'truncate'",
					       path);
}

static enum ar_status parse_keys(struct rope *r, const cJSON *scaling, const char *path,
				 struct ar_err *err)
{
	const char *name = type_names[r->type];

	for (size_t i = 0; i < N_SCALING_KEYS; i++) {
		const char *key = scaling_keys[i].name;
		double def = scaling_keys[i].def;

		if (!(scaling_keys[i].types & 1u << r->type))
			continue;
		*member(r, i) = def;
		if ((def < 0 || config_has(scaling, key)) &&
		    !json_real(config_get(scaling, key), 1e-3, 1e9, member(r, i)))
			return ar_fail(err, AR_DATA,
				       "%s: %s rope scaling: want a positive "
				       "number as '%s'",
				       path, name, key);
	}
	if (r->type == ROPE_LLAMA3 && r->high_freq < r->low_freq)
		return ar_fail(err, AR_DATA,
			       "%s: llama3 rope scaling: high_freq_factor must not be below "
			       "low_freq_factor",
			       path);
	if (r->type == ROPE_YARN && (!(r->beta_fast >= r->beta_slow) || r->theta == 1))
		return ar_fail(err, AR_DATA,
			       "%s: yarn rope scaling: beta_fast must not be below beta_slow, and "
			       "rope_theta above 1",
			       path);
	return r->type == ROPE_YARN ? parse_truncate(r, scaling, path, err) : AR_OK;
}

static const cJSON *get_type(const cJSON *scaling)
{
	const cJSON *v = config_get(scaling, "rope_type");

	return v ? v : config_get(scaling, "type");
}

const char *rope_type_unknown(const cJSON *scaling)
{
	static const char *const types[] = { "dynamic",	     "longrope", "mrope",
					     "proportional", "su",	 NULL };
	const cJSON *type = get_type(scaling);

	for (const char *const *t = types; *t && cJSON_IsString(type); t++)
		if (!strcmp(*t, type->valuestring))
			return *t;
	return NULL;
}

/* Read the keys that an object of any type has: rope_type, rope_theta and partial_rotary_factor. */
static enum ar_status parse_common(struct rope *r, const cJSON *scaling, const char *path,
				   struct ar_err *err)
{
	const cJSON *v = get_type(scaling);
	int type = 0;

	if (!cJSON_IsObject(scaling))
		return ar_fail(err, AR_DATA, "%s: rope scaling is no object", path);
	if (!cJSON_IsString(v))
		return ar_fail(err, AR_DATA, "%s: rope scaling has no 'rope_type'", path);
	while (type_names[type] && strcmp(type_names[type], v->valuestring) != 0)
		type++;
	if (!type_names[type])
		return ar_fail(err, AR_DATA,
			       "%s: unknown rope type '%.32s'; known are default, linear, llama3 "
			       "and yarn",
			       path, v->valuestring);
	r->type = (enum rope_type)type;
	if (config_has(scaling, "rope_theta") &&
	    !json_real(config_get(scaling, "rope_theta"), 1, 1e12, &r->theta))
		return ar_fail(err, AR_DATA,
			       "%s: want a number from 1 to 1e12 as "
			       "'rope_theta'",
			       path);
	return rope_parse_share(r, scaling, path, err);
}

enum ar_status rope_parse_share(struct rope *r, const cJSON *o, const char *path,
				struct ar_err *err)
{
	static const char key[] = "partial_rotary_factor";

	if (config_has(o, key) && !json_real(config_get(o, key), 1e-3, 1, &r->share))
		return ar_fail(err, AR_DATA, "%s: want a number from 0.001 to 1 as '%s'", path,
			       key);
	r->share = r->share < 1 ? r->share : 0;
	return AR_OK;
}

enum ar_status rope_parse(struct rope *r, double theta, const cJSON *scaling, const char *path,
			  struct ar_err *err)
{
	struct rope x = { .theta = theta };
	enum ar_status st = AR_OK;

	if (scaling && !cJSON_IsNull(scaling)) {
		st = parse_common(&x, scaling, path, err);
		if (!st)
			st = parse_keys(&x, scaling, path, err);
	}
	if (!st)
		*r = x;
	return st;
}

bool rope_is_scaled(const struct rope *r)
{
	return r->type != ROPE_DEFAULT || r->share > 0;
}

cJSON *rope_scaling_json(const struct rope *r)
{
	cJSON *o = cJSON_CreateObject();
	bool done = o && cJSON_AddStringToObject(o, "rope_type", type_names[r->type]);

	for (size_t i = 0; done && i < N_SCALING_KEYS; i++)
		if (scaling_keys[i].types & 1u << r->type && member_of(r, i) > 0)
			done = cJSON_AddNumberToObject(o, scaling_keys[i].name, member_of(r, i));
	if (done && r->type == ROPE_YARN)
		done = cJSON_AddBoolToObject(o, "truncate", r->truncate);
	if (done && r->share > 0)
		done = cJSON_AddNumberToObject(o, "partial_rotary_factor", r->share);
	if (done)
		return o;
	cJSON_Delete(o);
	return NULL;
}

bool rope_equal(const struct rope *a, const struct rope *b)
{
	bool same = a->theta == b->theta && a->type == b->type && a->share == b->share &&
		    a->truncate == b->truncate;

	for (size_t i = 0; same && i < N_SCALING_KEYS; i++)
		same = member_of(a, i) == member_of(b, i);
	return same;
}
