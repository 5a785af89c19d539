/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a run that limits of --slo are compared with, and the counts of kept limits. */
#include "config.h"
#include "src/run/run.h"

#include <math.h>
#include <strings.h>

enum latency_metric run_limited_latency(const struct slo_limit *l)
{
	int m = 0;

	while (strcasecmp(latency_names[m], l->metric))
		m++;
	return (enum latency_metric)m;
}

/* Of several limits of a latency, the longest holds for each request. */
void run_set_limits(struct replay *cfg, const struct slo *slo)
{
	for (size_t i = 0; i < slo->n; i++) {
		int64_t *ns = &cfg->limit_ns[run_limited_latency(&slo->limit[i])];

		if (*ns < slo->limit[i].ns)
			*ns = slo->limit[i].ns;
	}
}

static double percentile(const struct series *s, double p)
{
	return s->n ? series_percentile(s, p) : NAN;
}

static double share(int64_t n, int64_t of)
{
	return of ? (double)n / (double)of : 0;
}

static int64_t prompt_tokens(const struct trace *t)
{
	int64_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += t->req[i].prompt_tok;
	return n;
}

struct run_figures run_figures(const struct trace *trace, const struct slo *slo,
			       const struct replay_result *res)
{
	double s = (double)(res->end_ns - trace->req[0].arrival_ns) / 1e9;
	struct run_figures f = {
		.ok = res->ok,
		.good = res->good,
		.of = res->ok + res->rejected + res->unfinished,
		.extrapolated = res->iterations ? res->beyond / (double)res->iterations : 0,
		.cached = share(res->cached_tok, prompt_tokens(trace)),
		.done_per_s = s > 0 ? (double)res->ok / s : NAN,
		.kept = res->drop_rows ? (double)res->drop_kept / (double)res->drop_rows : 1,
		.ttft_p99 = percentile(&res->latency[LATENCY_TTFT], 99)
	};

	for (size_t i = 0; i < slo->n; i++) {
		const struct slo_limit *l = &slo->limit[i];
		const struct series *x = &res->latency[run_limited_latency(l)];

		f.limited[i] = percentile(x, l->percentile);
		f.n_limited[i] = x->n;
	}
	return f;
}
