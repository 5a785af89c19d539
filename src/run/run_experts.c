/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of a run: the ranks that share them, and to which of them rows go. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool run_shares_experts(const struct run_options *o)
{
	return o->ep > o->tp;
}

static const struct roofline_options *roofline_of(const struct run_options *o)
{
	return run_options_of(o, &backend_roofline);
}

bool run_draws_experts(const struct run_session *s)
{
	return s->backend && s->backend->modelled && strcmp(roofline_of(&s->o)->routing, "even");
}

/* The ranks must be there. */
static enum ar_status check_size(const struct run_options *o, struct ar_err *err)
{
	const int64_t engines = o->apart.prefill ? 1 : o->replicas;

	if (o->ep == 1 || o->ep == o->tp || o->ep == o->tp * engines)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "ep %" PRId64 ": want as many as --tp, or times --replicas that are not "
		       "apart; they are %" PRId64 " and %" PRId64,
		       o->ep, o->tp, o->apart.prefill ? o->apart.prefill : o->replicas);
}

/* Refuse options that need the effect of others. */
static enum ar_status check_effect(const struct run_options *o, struct ar_err *err)
{
	static const struct {
		const char *name, *without;
	} needs[] = { { "ep-backend", "without --ep above --tp" },
		      { "routing-seed", "without --routing uniform, zipf or FILE" } };
	const bool holds[] = { run_shares_experts(o),
			       strcmp(roofline_of(o)->routing, "even") != 0 };

	for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
		if (opt_given(o->group, needs[i].name) && !holds[i])
			return ar_fail(err, AR_USAGE, "%s has no effect %s; leave it out",
				       needs[i].name, needs[i].without);
	if (o->attention_only && (o->ep > 1 || opt_given(o->group, "routing")))
		return ar_fail(err, AR_USAGE,
			       "%s has no effect with --attention-only; leave it out",
			       o->ep > 1 ? "ep" : "routing");
	return AR_OK;
}

enum ar_status run_check_experts(const struct run_options *o, const struct backend *b,
				 struct ar_err *err)
{
	enum ar_status st = check_size(o, err);

	if (!st)
		st = check_effect(o, err);
	if (st || o->ep == 1 || b->modelled || !b->needs_model)
		return st;
	return ar_fail(err, AR_USAGE,
		       "ep %" PRId64 ": backend %s runs a rank with all experts; take --backend "
		       "roofline, or cost for the messages alone",
		       o->ep, b->name);
}

enum ar_status run_try_experts(const struct run_session *s, struct ar_err *err)
{
	bool is_file;

	return run_draws_experts(s) ? experts_check(roofline_of(&s->o)->routing, &is_file, err) :
				      AR_OK;
}

enum ar_status run_spread_experts(struct model *m, const struct run_options *o, struct ar_err *err)
{
	return o->ep > 1 ? model_spread(m, (int)o->ep, err) : AR_OK;
}

/* The shape of the layers with experts.  kind: [n_layers] gets that of each. */
static struct experts_shape shape_of(const struct model *m, int64_t ranks, int *kind)
{
	struct experts_shape s = { .ranks = (int)ranks, .layers = m->n_layers, .kind = kind };

	for (int i = 0; i < m->n_layers; i++) {
		const struct layer_spec *l = &m->layer[i];

		kind[i] = l->n_experts ? model_layer_kind(m, i) : -1;
		if (l->n_experts) {
			s.experts = l->n_experts;
			s.per_tok = l->experts_per_tok;
		}
	}
	return s;
}

/* Refuse what has no effect on the experts of the model, or is not modelled. */
static enum ar_status check_model(const struct run_inputs *in, const struct run_options *o,
				  const struct model *m, bool has, struct ar_err *err)
{
	if (o->engine_dp && o->replicas > 1 && has && o->ep == 1)
		return ar_fail(err, AR_USAGE,
			       "engine-args: without --enable-expert-parallel the engines of "
			       "--data-parallel-size have slices of the experts of %s, which is "
			       "not modelled; add it, or take --replicas in place of "
			       "--data-parallel-size",
			       m->name);
	if (opt_given(o->group, "routing") && !has)
		return ar_fail(err, AR_USAGE,
			       "routing has no effect: %s has no experts; leave it out", m->name);
	if (in->costs && o->ep > 1 && !run_shares_experts(o))
		return ar_fail(err, AR_USAGE,
			       "ep has no effect: the costs of %s are of a rank; leave it out",
			       in->costs->name);
	return AR_OK;
}

enum ar_status run_load_experts(struct run_inputs *in, const struct run_session *s,
				const struct model *m, struct ar_err *err)
{
	const struct roofline_options *roof = roofline_of(&s->o);
	const bool draws = run_draws_experts(s);
	int *kind = malloc((size_t)m->n_layers * sizeof *kind);
	struct experts_shape shape;
	enum ar_status st;

	if (!kind)
		return ar_nomem(err);
	shape = shape_of(m, s->o.ep, kind);
	st = check_model(in, &s->o, m, shape.experts, err);
	if (!st && (s->o.ep > 1 || draws) && !in->experts)
		st = experts_open(&in->experts, draws ? roof->routing : "even", &shape,
				  (uint64_t)roof->routing_seed, err);
	free(kind);
	return st;
}

void run_print_experts(const struct run_inputs *in, const struct run_session *s)
{
	const struct run_options *o = &s->o;

	if (!in->experts)
		return;
	fputs("experts   ", stdout);
	if (o->ep > 1 && o->tp > 1)
		printf("on %" PRId64 " ranks", o->ep);
	if (run_shares_experts(o))
		printf("%s %" PRId64 " engines, which wait for each other",
		       o->tp > 1 ? " of" : "on", o->replicas);
	if (o->ep > 1)
		fputs("; ", stdout);
	printf("rows go to them by %s", run_draws_experts(s) ? roofline_of(o)->routing : "even");
	if (in->costs)
		fputs("; only their messages are modelled", stdout);
	putchar('\n');
}
