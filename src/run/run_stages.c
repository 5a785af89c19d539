/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline stages of a run: --pp and --pp-layers. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdio.h>

enum { ROW = 4 /* bytes of a channel: its hidden state and its residual */ };

static enum ar_status refuse(const struct run_options *o, const char *why, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "pp %" PRId64 ": %s", o->pp, why);
}

enum ar_status run_check_stages(const struct run_options *o, const struct backend *b,
				struct ar_err *err)
{
	if (o->pp == 1)
		return opt_given(o->group, "pp-layers") ?
			       ar_fail(err, AR_USAGE,
				       "pp-layers has no effect without --pp above 1; leave it "
				       "out") :
			       AR_OK;
	if (b->needs_model && (!b->modelled || o->captures.n))
		return refuse(o,
			      "kernels run all layers on one GPU; take --backend roofline "
			      "without --capture, or cost",
			      err);
	if (!(policies[o->policy]->can & POLICY_KV_APART))
		return refuse(o, "only policies of vLLM have stages here", err);
	if (opt_given(o->group, "async-scheduling") && o->limits.async)
		return refuse(o, "with stages no plan is made ahead; leave --async-scheduling out",
			      err);
	if (o->apart.prefill || run_shares_experts(o) || o->ranks != RUN_RANKS_ONE)
		return refuse(o,
			      "it goes neither with --prefill-replicas, nor with --ep of "
			      "engines, nor with --ranks",
			      err);
	return AR_OK;
}

enum ar_status run_set_stages(struct run_inputs *in, const struct run_options *o,
			      const struct model *m, struct ar_err *err)
{
	in->stages = (struct stages){ .n = 1, .layers = { m->n_layers }, .n_layers = m->n_layers };
	if (o->pp == 1)
		return AR_OK;
	in->stages.row_bytes = (int64_t)ROW * m->hidden / m->tp;
	if (o->pp > m->n_layers)
		return ar_fail(err, AR_USAGE, "pp %" PRId64 ": %s has %d layers; lower it", o->pp,
			       m->name, m->n_layers);
	if (in->costs && m->tp > 1)
		return refuse(o, "it is not modelled with --costs of --tp above 1", err);
	if (o->pp_layers)
		return stages_read(&in->stages, o->pp_layers, m->n_layers, (int)o->pp, err);
	stages_split(&in->stages, m->n_layers, (int)o->pp);
	return AR_OK;
}

enum ar_status run_check_stage_limits(const struct run_inputs *in, const struct run_options *o,
				      struct ar_err *err)
{
	if (o->pp == 1 || (!in->limits.group && !in->limits.evict))
		return AR_OK;
	return refuse(o,
		      in->limits.group ? "the model has layers of several kinds, whose KV blocks "
					 "are not split by stages yet" :
					 "no evictor goes with stages",
		      err);
}

struct model run_stage_model(const struct stages *s, const struct model *m, int i)
{
	struct model part = *m;

	for (int k = 0; k < i; k++)
		part.layer += s->layers[k];
	if (s->n == 1)
		return part;
	part.n_layers = s->layers[i];
	part.tied = 1;
	if (i && i < s->n - 1)
		part.vocab = 0;
	return part;
}

void run_print_stages(const struct run_inputs *in)
{
	const struct stages *s = &in->stages;

	if (s->n <= 1)
		return;
	printf("stages    %d, of ", s->n);
	for (int i = 0; i < s->n; i++)
		printf("%s%d", i ? ", " : "", s->layers[i]);
	printf(" layers; as many batches are in flight\n");
}
