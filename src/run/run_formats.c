/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of a run: of the model's weights and of its KV cache, as options or its config
 * say. */
#include "config.h"
#include "src/run/run.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/json.h"
#include "model/quant.h"

/* vLLM's words for 16 bits.  Kernels compute in bf16, and float16 has as many bytes. */
static enum ar_status check_dtype(const char *dtype, struct ar_err *err)
{
	static const char *const known[] = { "auto", "bfloat16", "float16", "half" };

	for (size_t i = 0; dtype && i < sizeof known / sizeof *known; i++)
		if (!strcmp(dtype, known[i]))
			return AR_OK;
	return dtype ? ar_fail(err, AR_USAGE,
			       "dtype '%s' is not known; known are auto, bfloat16, float16 and "
			       "half, whose activations have 2 bytes",
			       dtype) :
		       AR_OK;
}

enum ar_status run_set_formats(struct model *m, const struct run_options *o, bool kernels,
			       struct ar_err *err)
{
	enum ar_status st = check_dtype(o->dtype, err);

	if (!st)
		st = model_set_formats(m, o->quantization, o->kv_dtype, err);
	if (!st && o->kv_skip)
		st = model_skip_kv(m, o->kv_skip, err);
	return st || !kernels ? st : model_check_formats(m, err);
}

/* A format by its text; "": bf16. */
static const char *or_bf16(const char *text)
{
	return *text ? text : "bf16";
}

enum ar_status run_set_cost_formats(struct model *m, const struct costs *c,
				    const struct run_options *o, struct ar_err *err)
{
	cJSON *params = c->run.method_params ? json_parse_all(c->run.method_params, NULL) : NULL;
	const char *w = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(params, "weights"));
	const char *k = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(params, "kv_cache"));
	enum ar_status st = w || k ? run_set_formats(m, o, false, err) :
				     model_set_formats(m, "none", "bfloat16", err);
	char weights[96], kv[64];

	w = w ? w : "";
	k = k ? k : "";
	model_weights_text(m, weights, sizeof weights);
	model_kv_text(m, kv, sizeof kv);
	if (!st && (strcmp(weights, w) || strcmp(kv, k)))
		st = ar_fail(
			err, AR_DATA,
			"%s: its costs are of weights in %s and a KV cache in %s, but its model "
			"has %s and %s; measure them again",
			c->name, or_bf16(w), or_bf16(k), or_bf16(weights), or_bf16(kv));
	cJSON_Delete(params);
	return st;
}

char *run_params(const struct model *m, const struct plan *p)
{
	char weights[96], kv[64], *text;
	cJSON *o;

	model_weights_text(m, weights, sizeof weights);
	model_kv_text(m, kv, sizeof kv);
	if (!*weights && !*kv)
		return strdup(p->params);
	o = json_parse_all(p->params, NULL);
	text = o && (!*weights || json_add(o, "weights", cJSON_CreateString(weights))) &&
			       (!*kv || json_add(o, "kv_cache", cJSON_CreateString(kv))) ?
		       cJSON_PrintUnformatted(o) :
		       NULL;
	cJSON_Delete(o);
	return text;
}
