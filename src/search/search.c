/* SPDX-License-Identifier: Apache-2.0 */
/* A point of a search is a run with options of its own.  The trace and the costs are read once, and
 * lent to all points. */
#include "config.h"
#include "src/search/search.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "src/run/workers.h"
#include "src/tune/match.h"
#include "traces/algebra/shape.h"

/* ---- options ---- */

/* Parse the command line once more, with settings after it. */
static enum ar_status search_parse(const struct search *s, struct run *r,
				   const struct run_setting *setting, struct ar_err *err)
{
	struct search_args unused = { 0 };
	struct run_command c = { .own = s->own, .setting = setting, .costs = r->in.lent_costs };
	enum ar_status st;

	c.own.base = &unused;
	st = run_options_parse(&r->session.o, &c, s->argc, s->argv, err);
	if (s->a.apart)
		opt_weaken(r->session.o.group, "kv-link"); /* other points have none */
	opt_release((struct opt_group[]){ c.own, { 0 } });
	r->session.o.objectives = s->slo;
	r->session.pid = getpid();
	r->session.cmdline = strdup(s->cmdline);
	return st || r->session.cmdline ? st : ar_nomem(err);
}

static enum ar_status search_check(struct search *s, struct run_options *o, struct ar_err *err)
{
	const struct search_args *a = &s->a;

	if (!a->slo)
		return ar_fail(err, AR_USAGE,
			       "no limits given; give some with --slo, such as "
			       "ttft:p99:500ms,tpot:p50:30ms");
	if (opt_asked(o->group, s->kind->option))
		return ar_fail(err, AR_USAGE, "the search sets %s; leave it out", s->kind->option);
	if (!s->kind->gpus && a->apart)
		return ar_fail(err, AR_USAGE,
			       "apart has no effect without a search for gpus; leave it out");
	if (a->lowest > 0 && a->highest > 0 && a->lowest > a->highest)
		return ar_fail(err, AR_USAGE, "lowest %.10g is above highest %.10g; swap them",
			       a->lowest, a->highest);
	return slo_parse(&s->slo, a->slo, true, err);
}

/* ---- the searched space ---- */

/* The runs of --costs DB:RUN,RUN-RUN; NULL: none is named so. */
static const char *cost_runs(const char *costs)
{
	const char *colon = costs ? strrchr(costs, ':') : NULL;

	return colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789,-")] ? colon + 1 :
										    NULL;
}

/* Let a run have the size of the search, where it has one; text[n] is for its value. */
static void set_tp(const struct search *s, struct run_setting *setting, char *text, size_t n)
{
	if (!s->tp)
		return;
	snprintf(text, n, "%" PRId64, s->tp);
	*setting = (struct run_setting){ "tp", text };
}

static enum ar_status load_base(struct search *s, const char *costs, struct ar_err *err)
{
	struct run_setting setting[4] = { 0 };
	struct run *r = calloc(1, sizeof *r);
	char tp[32];
	size_t n = 0;
	enum ar_status st;

	if (!r || !GROW(s->base, s->cap_base, s->n_base + 1)) {
		free(r);
		return ar_nomem(err);
	}
	s->base[s->n_base++] = r;
	if (costs)
		setting[n++] = (struct run_setting){ "costs", costs };
	if (s->kind->base)
		setting[n++] = (struct run_setting){ s->kind->option, s->kind->base };
	set_tp(s, setting + n, tp, sizeof tp);
	r->session.tuner = &match_tuner; /* points have the settings that it finds */
	r->in.lent_trace = r == *s->base ? NULL : (*s->base)->in.trace;
	st = search_parse(s, r, setting, err);
	if (st)
		return st;
	s->shift_ns = r->session.o.trace_args.shift_ns;
	if (s->kind->scales)
		r->session.o.trace_args.shift_ns = 0;
	st = run_load(r, err);
	for (size_t i = 1; i < r->in.n_runs && !st; i++)
		st = run_try_method(r, r->in.plan[i]->name, err);
	return st;
}

/* A base for each run that --costs names, or one. */
static enum ar_status load_bases(struct search *s, const char *costs, struct ar_err *err)
{
	const char *run = cost_runs(costs);
	enum ar_status st = run ? AR_OK : load_base(s, costs, err);

	while (run && !st) {
		size_t n = strcspn(run, ",");
		uint64_t from, to;

		if (!num_range(run, n, &from, &to) || to > INT64_MAX)
			return ar_fail(
				err, AR_USAGE,
				"costs '%s': want DB:RUN, or numbers and ranges of runs such "
				"as DB:1,4-6",
				costs);
		for (; from <= to && !st; from++) {
			char *one = NULL;

			if (asprintf(&one, "%.*s%" PRIu64, (int)(cost_runs(costs) - costs), costs,
				     from) < 0)
				return ar_nomem(err);
			st = load_base(s, one, err);
			free(one);
		}
		run = run[n] ? run + n + 1 : NULL;
	}
	return st;
}

static enum ar_status add_subjects(struct search *s, struct ar_err *err)
{
	size_t n = 0;

	for (size_t b = 0; b < s->n_base; b++)
		n += s->base[b]->in.n_runs;
	s->subject = calloc(n, sizeof *s->subject);
	if (!s->subject)
		return ar_nomem(err);
	for (size_t b = 0; b < s->n_base; b++)
		for (size_t i = 0; i < s->base[b]->in.n_runs; i++) {
			struct run *r = s->base[b];
			bool dense = r->in.plan ? r->in.plan[i]->dense :
						  r->in.costs && r->in.costs->run.dense;

			s->subject[s->n_subject++] = (struct subject){
				.base = r, .i = i, .dense = dense, .lo = NAN, .hi = NAN
			};
		}
	return AR_OK;
}

static enum ar_status search_load(struct search *s, struct ar_err *err)
{
	struct run_command c = { .own = s->own };
	struct run_options o;
	char *costs = NULL;
	enum ar_status st = run_options_parse(&o, &c, s->argc, s->argv, err);

	s->own = c.own;
	if (!st)
		st = search_check(s, &o, err);
	if (!st)
		st = s->kind->check(s, &o, err);
	if (!st && o.db)
		signal(SIGPIPE, SIG_IGN); /* as in 'attnreplay run' */
	if (!st && run_options_costs(&o)) {
		costs = strdup(run_options_costs(&o));
		if (!costs)
			st = ar_nomem(err);
	}
	run_options_release(&o);
	if (!st)
		st = load_bases(s, costs, err);
	free(costs);
	if (!st) {
		const struct trace *t = s->base[0]->in.trace;

		s->req = malloc(t->n * sizeof *s->req);
		if (!s->req)
			return ar_nomem(err);
		memcpy(s->req, t->req, t->n * sizeof *s->req);
		st = add_subjects(s, err);
	}
	return st;
}

/* ---- a point ---- */

/* Give the trace another rate, as --rate does. */
static enum ar_status set_rate(const struct search *s, const struct run *r, struct ar_err *err)
{
	const struct trace_args args = { .rate = r->session.o.trace_args.rate,
					 .shift_ns = s->shift_ns };
	struct trace *t = s->base[0]->in.trace;
	const enum log_level level = log_level;
	enum ar_status st;

	memcpy(t->req, s->req, t->n * sizeof *t->req);
	if (log_level == LOG_INFO)
		log_level = LOG_WARN; /* that a rate is a time scale */
	st = trace_shape(t, &args, err);
	log_level = level;
	return st;
}

static bool keeps(const struct search *s, const struct run_figures *f)
{
	const struct slo *slo = &s->slo;

	if (f->ok < s->least_ok)
		return false;
	for (size_t i = 0; i < slo->n; i++)
		if (slo->limit[i].percentile > 0 && f->limited[i] > (double)slo->limit[i].ns)
			return false;
	return true;
}

static enum ar_status add_point(struct subject *u, const struct point *new, struct ar_err *err)
{
	size_t i = u->n;

	if (!GROW(u->point, u->cap, u->n + 1))
		return ar_nomem(err);
	for (; i && u->point[i - 1].x > new->x; i--)
		u->point[i] = u->point[i - 1];
	u->point[i] = *new;
	u->n++;
	return AR_OK;
}

static enum ar_status judge_point(const struct search *s, struct point *p, struct ar_err *err)
{
	const struct slo *slo = &s->slo;

	for (size_t k = 0; k < slo->n; k++)
		if (!p->f.n_limited[k])
			return ar_fail(err, AR_USAGE,
				       "slo limits %s, but no request has one; leave it out",
				       slo->limit[k].metric);
	p->kept = keeps(s, &p->f);
	return AR_OK;
}

/* The tensor parallel size of a run; 1 without a model. */
static int64_t point_tp(const struct run *r)
{
	if (run_needs_model(&r->session))
		return r->in.model.tp;
	return r->in.costs && r->in.costs->run.tp ? r->in.costs->run.tp : 1;
}

static struct point failed_point(double x)
{
	struct point p = { .x = x, .fails = true, .f = { .done_per_s = NAN, .ttft_p99 = NAN } };

	for (int k = 0; k < SLO_MAX; k++)
		p.f.limited[k] = NAN;
	return p;
}

/* A replicate is not stored, and its host draws anew. */
static void make_replicate(const struct search *s, struct run_options *o)
{
	if (!s->replicate)
		return;
	free(o->db);
	o->db = NULL;
	if (o->host_seed)
		o->host_seed += s->replicate;
}

/* Runs on a GPU need a process of their own, see run_method_apart(). */
static enum ar_status run_point(const struct search *s, struct run *r, struct ar_err *err)
{
	enum ar_status st = run_load(r, err);

	make_replicate(s, &r->session.o);
	if (!st)
		st = run_describe(&r->session, err);
	if (st)
		return st;
	return !r->session.backend || r->session.backend->uses_gpu ?
		       run_method_apart(r, 0, 0, err) :
		       run_method(r, 0, err);
}

enum ar_status search_point(struct search *s, struct subject *u, double x, const char *text,
			    bool *kept, struct ar_err *err)
{
	const struct run_setting set[] = { { s->kind->option, text }, { 0 } };

	return search_point_of(s, u, x, set, kept, err);
}

enum ar_status search_point_of(struct search *s, struct subject *u, double x,
			       const struct run_setting *set, bool *kept, struct ar_err *err)
{
	const struct run *base = u->base;
	struct run_setting setting[8] = { 0 };
	size_t n = 0;
	struct point p = { .x = x };
	char what[64], tp[32], shown[RATE_CHARS];
	struct run r = { .in = { .lent_trace = s->base[0]->in.trace, .lent_costs = base->in.costs },
			 .session = { .print = s->header || json_file_alone(s->a.json) ?
						       0 :
						       RUN_PRINT_HEADER,
				      .point = what } };
	const int64_t begin = workers_now_ns();
	enum ar_status st;

	for (; set->name; set++)
		setting[n++] = *set;
	if (base->in.plan)
		setting[n++] = (struct run_setting){ "method", base->in.plan[u->i]->name };
	if (base->in.costs)
		setting[n++] = (struct run_setting){ "costs", base->in.costs->name };
	if (base->in.costs && s->replicate)
		setting[n++] = (struct run_setting){ "costs-extrapolate", "1" };
	if (s->backend && !base->session.backend) /* auto */
		setting[n++] = (struct run_setting){ "backend", s->backend->name };
	set_tp(s, setting + n, tp, sizeof tp);
	snprintf(what, sizeof what, "%s %s", s->kind->name, rate_text(x, shown));
	st = search_parse(s, &r, setting, err);
	if (!st && base->in.plan)
		st = run_options_keep_densities(&r.session.o, &base->in.plan[u->i]->name, 1, err);
	if (!st && s->kind->scales)
		st = set_rate(s, &r, err);
	if (!st)
		st = run_point(s, &r, err);
	if (!st) {
		p.f = r.out.figures;
		st = judge_point(s, &p, err);
	} else if (st == AR_ENGINE) {
		log_warn("%s: %s", what, err->msg);
		p = failed_point(x);
		st = AR_OK;
	}
	if (!st) {
		s->header = true;
		s->backend = r.session.backend;
		p.tp = point_tp(&r);
		p.prefill = r.session.o.apart.prefill;
		st = add_point(u, &p, err);
	}
	*kept = p.kept;
	s->points_ns += workers_now_ns() - begin;
	s->n_points++;
	if (st)
		ar_err_prefix(err, "%s", what);
	run_unload(&r);
	return st;
}

/* ---- the command ---- */

static void search_release(struct search *s)
{
	for (size_t i = 0; i < s->n_subject; i++) {
		free(s->subject[i].point);
		free(s->subject[i].replicate);
	}
	free(s->subject);
	resample_close(s->resampler);
	free(s->req);
	for (size_t i = s->n_base; i--;) { /* the first owns the trace */
		run_unload(s->base[i]);
		free(s->base[i]);
	}
	free(s->base);
	free(s->cmdline);
	opt_release((struct opt_group[]){ s->own, { 0 } });
}

/* Search for one subject, and print its curve. */
static enum ar_status search_one(struct search *s, struct subject *u, struct ar_err *err)
{
	enum ar_status st = s->kind->find(s, u, err);

	if (st || json_file_alone(s->a.json))
		return st;
	if (u == s->subject) {
		fputs("limits    ", stdout);
		text_put(s->a.slo, stdout);
		putchar('\n');
	}
	s->kind->curve(s, u);
	s->kind->verdict(s, u);
	fflush(stdout); /* the next one can take long */
	return AR_OK;
}

/* A file that cannot be written is found out before the search. */
static enum ar_status open_json(const struct search *s, struct outfile *f, struct ar_err *err)
{
	const char *db = s->base[0]->session.o.db;
	bool same = false;
	enum ar_status st = AR_OK;

	if (s->a.json && db)
		st = outfile_same(s->a.json, db, &same, err);
	if (same)
		return ar_fail(err, AR_USAGE, "%s: given for two outputs; name another file", db);
	return st ? st : json_file_open(f, s->a.json, err);
}

enum ar_status search_run(const struct search_kind *kind, const struct opt *opts, int argc,
			  char **argv, struct ar_err *err)
{
	struct search s = { .kind = kind,
			    .argc = argc - 1,
			    .argv = argv + 1,
			    .cmdline = cmd_line("search", argc, argv) };
	struct outfile json = { 0 };
	enum ar_status st = s.cmdline ? AR_OK : ar_nomem(err);

	s.own = (struct opt_group){ .opts = opts, .base = &s.a };
	if (!st)
		st = search_load(&s, err);
	if (!st)
		st = open_json(&s, &json, err);
	for (size_t i = 0; i < s.n_subject && !st; i++)
		st = search_one(&s, &s.subject[i], err);
	if (!st && !json_file_alone(s.a.json)) {
		if (s.n_subject > 1)
			kind->summary(&s);
		search_print_notes(&s);
	}
	if (!st && json.f)
		st = json_file_end(&json, search_json(&s), err);
	outfile_release(&json);
	search_release(&s);
	return st;
}
