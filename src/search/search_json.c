/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of a search for programs, as JSON. */
#include "config.h"
#include "src/search/search.h"

#include <math.h>

#include "base/bootstrap.h"
#include "base/json.h"

static cJSON *search_text(const char *s)
{
	return s ? cJSON_CreateString(s) : cJSON_CreateNull();
}

/* The latencies of one point, in the order of the limits: null for a limit of each request. */
static bool add_latencies(cJSON *to, const struct slo *slo, const struct run_figures *f)
{
	cJSON *all = cJSON_AddArrayToObject(to, "latency_ms");
	bool done = all;

	for (size_t i = 0; i < slo->n && done; i++)
		done = json_add(all, NULL,
				slo->limit[i].percentile > 0 ?
					cJSON_CreateNumber(f->limited[i] / 1e6) :
					cJSON_CreateNull());
	return done;
}

/* A count of requests for JSON, null where the engine fails. */
static double json_requests(const struct point *p, int64_t n)
{
	return p->fails ? NAN : (double)n;
}

static bool add_engines(cJSON *o, const struct point *p)
{
	return json_add_real(o, "tp", (double)p->tp) &&
	       json_add_real(o, "prefill_replicas", (double)p->prefill) &&
	       json_add_real(o, "decode_replicas",
			     p->prefill ? p->x / (double)p->tp - (double)p->prefill : 0);
}

static bool add_point(cJSON *all, const struct search *s, const struct point *p)
{
	cJSON *o = cJSON_CreateObject();

	return json_add(all, NULL, o) && json_add_real(o, s->kind->name, p->x) &&
	       (!s->kind->gpus || add_engines(o, p)) &&
	       json_add(o, "kept", cJSON_CreateBool(p->kept)) &&
	       json_add(o, "engine_fails", cJSON_CreateBool(p->fails)) &&
	       json_add_real(o, "requests", json_requests(p, p->f.of)) &&
	       json_add_real(o, "ok", json_requests(p, p->f.ok)) &&
	       json_add_real(o, "within_limits", json_requests(p, p->f.good)) &&
	       json_add_real(o, "done_per_s", p->f.done_per_s) &&
	       json_add_real(o, "ttft_p99_ms", p->f.ttft_p99 / 1e6) &&
	       add_latencies(o, &s->slo, &p->f);
}

/* A rate that only the end of the search bounds has none. */
double search_ratio(const struct search *s, const struct subject *u)
{
	const struct subject *first = s->subject;
	const bool ends = s->kind->gpus || (first->failed > 0 && u->failed > 0);

	return first->best && u->best && ends ? u->best->x / first->best->x : NAN;
}

/* Each value is known from what kept the limits up to what did not. */
bool search_ratio_interval(const struct search *s, const struct subject *u, double *lo, double *hi)
{
	const struct rates_found *a = u->replicate, *b = s->subject->replicate;
	const double x = search_ratio(s, u);
	double least[SEARCH_REPLICATES], most[SEARCH_REPLICATES], unused;

	if (!a || !b || u == s->subject)
		return false;
	for (int i = 0; i < SEARCH_REPLICATES; i++) {
		least[i] = a[i].kept / b[i].failed;
		most[i] = a[i].failed / b[i].kept;
	}
	bootstrap_interval(least, SEARCH_REPLICATES, 0.95, lo, &unused);
	bootstrap_interval(most, SEARCH_REPLICATES, 0.95, &unused, hi);
	return *lo <= x && x <= *hi;
}

/* The ratio to the first subject: a speed-up of rates, or a share of GPUs. */
static bool add_ratio(cJSON *o, const struct search *s, const struct subject *u)
{
	const bool gpus = s->kind->gpus;
	double lo = NAN, hi = NAN;

	if (!search_ratio_interval(s, u, &lo, &hi))
		lo = hi = NAN;
	return json_add_real(o, gpus ? "share" : "speedup", search_ratio(s, u)) &&
	       json_add_real(o, gpus ? "share_lo" : "speedup_lo", lo) &&
	       json_add_real(o, gpus ? "share_hi" : "speedup_hi", hi);
}

static bool add_intervals(cJSON *o, const struct subject *u)
{
	return json_add_real(o, "best_lo", u->lo) && json_add_real(o, "best_hi", u->hi) &&
	       json_add(o, "no_interval", search_text(*u->no_interval ? u->no_interval : NULL));
}

static bool add_subject(cJSON *all, const struct search *s, const struct subject *u)
{
	cJSON *o = cJSON_CreateObject(), *points;
	bool done = json_add(all, NULL, o) &&
		    json_add(o, "method", search_text(run_label(u->base, u->i))) &&
		    json_add(o, "costs",
			     search_text(u->base->in.costs ? u->base->in.costs->name : NULL)) &&
		    json_add(o, "dense", cJSON_CreateBool(u->dense)) &&
		    json_add(o, "best",
			     u->best ? cJSON_CreateNumber(u->best->x) : cJSON_CreateNull()) &&
		    json_add(o, "failed",
			     u->failed > 0 ? cJSON_CreateNumber(u->failed) : cJSON_CreateNull()) &&
		    add_ratio(o, s, u) && add_intervals(o, u);

	points = done ? cJSON_AddArrayToObject(o, "points") : NULL;
	done = points;
	for (size_t i = 0; i < u->n && done; i++)
		done = add_point(points, s, &u->point[i]);
	return done;
}

static bool add_limits(cJSON *o, const struct slo *slo)
{
	cJSON *all = cJSON_AddArrayToObject(o, "limits");
	bool done = all;

	for (size_t i = 0; i < slo->n && done; i++) {
		const struct slo_limit *l = &slo->limit[i];
		cJSON *x = cJSON_CreateObject();

		done = json_add(all, NULL, x) && json_add(x, "metric", search_text(l->metric)) &&
		       json_add(x, "percentile",
				l->percentile > 0 ? cJSON_CreateNumber(l->percentile) :
						    cJSON_CreateNull()) &&
		       json_add_real(x, "limit_ms", (double)l->ns / 1e6);
	}
	return done;
}

cJSON *search_json(const struct search *s)
{
	cJSON *o = cJSON_CreateObject(), *all = NULL;
	bool done = o && json_add(o, "schema", search_text("attnreplay-search-1")) &&
		    json_add(o, "searched", search_text(s->kind->name)) &&
		    json_add(o, "trace", search_text(s->base[0]->in.trace->name)) &&
		    add_limits(o, &s->slo);

	if (done)
		all = cJSON_AddArrayToObject(o, "curves");
	done = all;
	for (size_t i = 0; i < s->n_subject && done; i++)
		done = add_subject(all, s, &s->subject[i]);
	if (done)
		return o;
	cJSON_Delete(o);
	return NULL;
}
