/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/eval.h"

#include "base/json.h"

static bool add_count(cJSON *o, const char *name, size_t n)
{
	return json_add(o, name, cJSON_CreateNumber((double)n));
}

static bool add_expected(cJSON *o, const struct eval_expected *x)
{
	cJSON *all;

	if (!x->n)
		return json_add(o, "expected", cJSON_CreateNull());
	all = cJSON_AddObjectToObject(o, "expected");
	return all && add_count(all, "answers", x->n) && add_count(all, "agree", x->agree) &&
	       add_count(all, "only_here", x->only_here) &&
	       add_count(all, "only_in_file", x->only_in_file);
}

bool eval_json(void *ctx, size_t i, struct cJSON *o)
{
	const struct eval *e = ctx;
	const struct eval_summary s = eval_results_summary(&e->results, i);
	const struct eval_expected x = i ? (struct eval_expected){ 0 } : eval_expected(e);
	cJSON *all = cJSON_AddObjectToObject(o, "eval");

	return all && add_count(all, "prompts", s.n) && add_count(all, "exact", s.exact) &&
	       add_count(all, "lost", s.lost) && add_count(all, "won", s.won) &&
	       json_add_real(all, "mcnemar_p", s.p) && json_add_real(all, "logprob", s.logprob) &&
	       json_add_real(all, "logprob_diff", s.diff) && json_add_real(all, "kl", s.kl) &&
	       json_add_real(all, "executed", s.run.executed) && add_expected(all, &x);
}
