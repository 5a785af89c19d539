/* SPDX-License-Identifier: Apache-2.0 */
/* State-space mixers, from config.json. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>

#include "base/jsonval.h"

/* The limits of the time step.  An upper one that no float reaches is none. */
static enum ar_status read_limits(struct ssm_spec *s, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	const cJSON *v = config_get(config, "time_step_limit");
	const cJSON *to = cJSON_GetArrayItem(v, 1);
	double from;

	if (!config_has(config, "time_step_limit"))
		return AR_OK;
	if (cJSON_GetArraySize(v) != 2 || !json_real(cJSON_GetArrayItem(v, 0), 0, 1e38, &from))
		return ar_fail(err, AR_DATA, "%s: want two numbers from 0 on as 'time_step_limit'",
			       path);
	s->dt_min = (float)from;
	if (cJSON_IsNumber(to) && to->valuedouble < 1e38)
		s->dt_max = (float)to->valuedouble;
	if (s->dt_max < 0 || (s->dt_max > 0 && s->dt_max < s->dt_min))
		return ar_fail(err, AR_DATA, "%s: time_step_limit does not ascend", path);
	return AR_OK;
}

enum ar_status config_ssm(struct ssm_spec *s, const struct ssm_keys *k, const cJSON *config,
			  const char *path, struct ar_err *err)
{
	const struct {
		const char *key;
		int def, *to;
	} ints[] = {
		{ k->heads, 0, &s->heads },   { k->head_dim, 0, &s->head_dim },
		{ k->groups, 1, &s->groups }, { k->state, 0, &s->state },
		{ k->conv, 4, &s->conv },     { k->chunk, 256, &s->chunk },
	};
	enum ar_status st = AR_OK;

	*s = (struct ssm_spec){ .norm = 1, .elem = 2 };
	for (size_t i = 0; i < sizeof ints / sizeof *ints && !st; i++)
		st = config_int(config, ints[i].key, 1 << 16, ints[i].def, ints[i].to, path, err);
	if (st)
		return st;
	s->conv_bias = !config_has(config, k->conv_bias) || config_true(config, k->conv_bias);
	if (config_true(config, k->proj_bias))
		return ar_fail(err, AR_DATA,
			       "%s: biases of the projections of state-space layers (%s) are not "
			       "known; use a model without them",
			       path, k->proj_bias);
	if (s->heads % s->groups)
		return ar_fail(err, AR_DATA, "%s: %s %d does not divide %s %d", path, k->groups,
			       s->groups, k->heads, s->heads);
	return read_limits(s, config, path, err);
}

void layer_take_ssm(struct layer_spec *l, const struct ssm_spec *s)
{
	l->mixer = MIX_SSM;
	l->ssm = *s;
	l->q_heads = l->kv_heads = l->head_dim = l->rotary_dim = l->window = 0;
	l->qkv_bias = l->o_bias = l->qk_norm = l->out_gate = l->sinks = 0;
	l->score_scale = 0;
}
