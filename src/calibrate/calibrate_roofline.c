/* SPDX-License-Identifier: Apache-2.0 */
/* Calibrate the efficiencies of the roofline model on measured runs. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"
#include "base/text.h"
#include "replay/cost/costs.h"
#include "src/calibrate/calibrate.h"
#include "src/calibrate/roofline_runs.h"

struct args {
	char *gpu, *about;
};

/* ---- fitting ---- */

static int kind_of(const struct roofline_run *r, enum phase p)
{
	if (p == PHASE_SELECT)
		return roofline_selector_kind(method_prefill(r->method)->selector->name);
	return p == PHASE_ATTEND && !r->method->dense ?
		       roofline_executor_kind(method_prefill(r->method)->executor->name) :
		       (int)p;
}

/* The work of a phase with its parts, which run in bf16 where kernels are measured. */
static struct roofline_point point_of(const struct roofline_gpu *g, const struct roofline_work *w,
				      double ns)
{
	double flops = w->flops, bytes = w->bytes;

	for (int i = 0; i < ROOFLINE_PARTS; i++) {
		if (!roofline_has_part(w, i))
			continue;
		flops += w->part[i].flops;
		bytes += w->part[i].bytes;
	}
	return (struct roofline_point){ flops / (1e3 * g->tflops), bytes / g->gbps, ns };
}

/* The points of a kind, from all runs.  Returns their number. */
static size_t take_points(const struct roofline_runs *in, const struct roofline_gpu *g, int kind,
			  struct roofline_point *to)
{
	size_t n = 0;

	for (size_t i = 0; i < in->n_sample; i++) {
		const struct roofline_sample *s = &in->sample[i];
		const struct roofline_run *r = &in->run[s->run];

		for (int p = 1; p < PHASE_COUNT; p++) {
			int times = p == PHASE_HEAD ? 1 : r->n_layers;

			if (p == PHASE_DECODE && s->prefill)
				continue; /* they run while chunks end */
			if (kind_of(r, p) == kind && s->work[p].kernels && s->phase_ns[p] > 0)
				to[n++] = point_of(g, &s->work[p], (double)s->phase_ns[p] / times);
		}
	}
	return n;
}

/* Fit the time that each launch adds, from the gaps of the iterations with or without prompts. */
static void fit_launch(const struct roofline_runs *in, bool prefill, int64_t *launch_ns)
{
	double gap = 0, n = 0;

	for (size_t i = 0; i < in->n_sample; i++) {
		const struct roofline_sample *s = &in->sample[i];

		if (s->prefill != prefill)
			continue;
		gap += (double)s->span_ns;
		for (int p = 1; p < PHASE_COUNT; p++) {
			int times = p == PHASE_HEAD ? 1 : in->run[s->run].n_layers;

			gap -= (double)s->phase_ns[p];
			n += (double)times * s->work[p].kernels;
		}
	}
	if (n > 0)
		*launch_ns = gap > 0 ? llround(gap / n) : 0;
}

/* ---- the result ---- */

static void print_share(double x, bool told)
{
	if (told)
		printf("%9.3f", x);
	else
		printf("%9s", "-");
}

static double share_of(double modelled, double measured)
{
	return 100 * (modelled / measured - 1);
}

/* Sums, and percentile 90 of the points' errors. */
static void print_kind(const char *name, const struct roofline_rate *r,
		       const struct roofline_told *told, const struct roofline_point *p, size_t n,
		       double *off)
{
	double measured = 0, modelled = 0;

	for (size_t i = 0; i < n; i++) {
		double ns = roofline_fit_ns(r, &p[i]);

		measured += p[i].measured;
		modelled += ns;
		off[i] = fabs(share_of(ns, p[i].measured));
	}
	stats_sort(off, n);
	printf("%-20s%9zu", name, n);
	print_share(r->compute, told->compute);
	print_share(r->memory, told->memory);
	printf("%10" PRId64 "%10.2f%10.2f\n", r->fixed_ns, share_of(modelled, measured),
	       stats_percentile(off, n, 90));
}

static void print_run(const struct roofline_runs *in, const struct roofline_gpu *g, size_t run,
		      double *off)
{
	const struct roofline_run *r = &in->run[run];
	double measured = 0, modelled = 0;
	size_t n = 0;

	for (size_t i = 0; i < in->n_sample; i++) {
		const struct roofline_sample *s = &in->sample[i];
		struct roofline_time t;

		if (s->run != run)
			continue;
		t = roofline_time(g, r->method, s->work, s->prefill, r->n_layers);
		measured += (double)s->span_ns;
		modelled += (double)t.cost_ns;
		off[n++] = fabs(share_of((double)t.cost_ns, (double)s->span_ns));
	}
	stats_sort(off, n);
	text_put(r->name, stdout);
	printf(", %s: %zu iterations, %.3f ms measured, %.3f modelled, error %.2f %%, of "
	       "iterations p50 %.2f, p90 %.2f\n",
	       r->method->name, n, measured / 1e6, modelled / 1e6, share_of(modelled, measured),
	       stats_percentile(off, n, 50), stats_percentile(off, n, 90));
}

static enum ar_status fit_gpu(const struct roofline_runs *in, struct roofline_gpu *g,
			      struct ar_err *err)
{
	size_t most = in->n_sample * 2 + 1;
	struct roofline_point *p = malloc(most * sizeof *p);
	double *off = malloc(most * sizeof *off);
	char name[96];

	if (!p || !off) {
		free(p);
		free(off);
		return ar_nomem(err);
	}
	printf("%-20s%9s%9s%9s%10s%10s%10s\n", "phase", "points", "compute", "memory", "fixed ns",
	       "error %", "p90 |%|");
	for (int kind = 1; kind < ROOFLINE_KINDS; kind++) {
		size_t n = take_points(in, g, kind, p);
		struct roofline_told told = { false, false };
		struct roofline_rate r = g->rate[g->own[kind]		   ? kind :
						 kind < ROOFLINE_EXECUTORS ? PHASE_SELECT :
									     PHASE_ATTEND];

		if (!n || !roofline_kind_name(kind, name, sizeof name))
			continue;
		roofline_fit(p, n, &r, &told);
		g->rate[kind] = r;
		g->own[kind] = true;
		print_kind(name, &r, &told, p, n, off);
	}
	fit_launch(in, true, &g->launch_ns);
	fit_launch(in, false, &g->graph_launch_ns);
	printf("a launch adds %" PRId64 " ns, from a graph %" PRId64 " ns\n\n", g->launch_ns,
	       g->graph_launch_ns);
	for (size_t i = 0; i < in->n_run; i++)
		print_run(in, g, i, off);
	free(p);
	free(off);
	return AR_OK;
}

static void describe_result(const struct args *a, const struct roofline_runs *in,
			    struct roofline_gpu *g)
{
	if (a->about)
		snprintf(g->about, sizeof g->about, "%s", a->about);
	else
		snprintf(g->about, sizeof g->about, "fitted to %zu iterations of %zu runs on %s",
			 in->n_sample, in->n_run, in->gpu);
}

static enum ar_status run_roofline(const void *arg, char *const *path, size_t n, const char *out,
				   struct ar_err *err)
{
	const struct args *a = arg;
	struct roofline_runs in = { 0 };
	struct roofline_gpu g;
	enum ar_status st = roofline_gpu_load(&g, a->gpu, err);

	for (size_t i = 0; i < n && !st; i++)
		st = roofline_runs_add(&in, path[i], err);
	if (!st)
		st = fit_gpu(&in, &g, err);
	if (!st) {
		describe_result(a, &in, &g);
		g.memory_bytes = in.memory_bytes;
		st = roofline_gpu_write(&g, out, err);
	}
	roofline_runs_release(&in);
	return st;
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "gpu", .type = OPT_STR, .off = OFF(gpu), .arg = "NAME|FILE", .def = "h200",
	  .choice = roofline_gpu_names,
	  .help = "GPU whose peaks the runs are compared with; what no run tells stays as it is "
		  "there" },
	{ .name = "about", .type = OPT_STR, .off = OFF(about), .arg = "TEXT",
	  .help = "what the file says of itself; runs and GPU if not given" },
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_roofline = {
	.name = "roofline",
	.title = "the rates of a GPU's kernels, from measured runs, for run --gpu",
	.operand = "measured run",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run_logs = run_roofline,
};
