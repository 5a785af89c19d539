/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan: for each layer the setting with the least density that still finds a share of the
 * attention.
 *
 * A curve over mean recalls is printed as well.  It compares the density of a greedy search with
 * that of the best single setting for all layers.  The greedy search may lower one layer more than
 * another.
 */
#include "config.h"

#include <stdlib.h>

#include "base/binfile.h"
#include "src/calibrate/plan_measure.h"

struct args {
	char *methods;
	double recall;
	struct plan_sample sample;
};

struct found {
	const struct args *a;
	const struct plan_settings *s;
	struct plan_table t;
	int *layer;	/* [t.n_layer] */
	size_t *choice; /* [t.n_layer] settings of the plan */
	size_t *scratch;
};

static void choose_point(const struct found *x)
{
	for (size_t l = 0; l < x->t.n_layer; l++)
		x->choice[l] = plan_cheapest(&x->t, l, x->a->recall);
}

/* ---- the file ---- */

/* A layer without a capture has the setting of the nearest captured layer; of two as near, the
 * lower. */
static int last_of(const struct found *x, size_t l)
{
	return l + 1 < x->t.n_layer ? (x->layer[l] + x->layer[l + 1]) / 2 : PLAN_TO_LAST;
}

static void put_plan(FILE *f, const struct found *x)
{
	struct plan_range r = { 0 };
	char text[32];

	fprintf(f,
		"# attnreplay calibrate plan: the least density at recall %g in each captured "
		"layer\n",
		x->a->recall);
	for (size_t l = 0; l < x->t.n_layer; l++) {
		r.last = last_of(x, l);
		if (l + 1 < x->t.n_layer && x->choice[l + 1] == x->choice[l])
			continue;
		fprintf(f, "%s %s\n", plan_layers(&r, text, sizeof text),
			x->s->method[x->choice[l]]->name);
		r.first = r.last + 1;
	}
}

/* ---- output ---- */

static void print_layers(const struct found *x, const char *out)
{
	struct plan_point mean = plan_mean(&x->t, x->choice);

	printf("%zu settings, dense among them\n\n%5s%9s%9s  %s\n", x->t.n_setting, "layer",
	       "density", "recall", "method");
	for (size_t l = 0; l < x->t.n_layer; l++) {
		const struct plan_point *p = plan_at(&x->t, l, x->choice[l]);

		printf("%5d%9.4f%9.4f  %s\n", x->layer[l], p->density, p->recall,
		       x->s->method[x->choice[l]]->name);
	}
	printf("%5s%9.4f%9.4f  recall %g in each layer, written to %s\n", "mean", mean.density,
	       mean.recall, x->a->recall, out);
}

/* A level with the same plans as the level before has no line. */
static void print_curve(const struct found *x)
{
	static const double levels[] = { 1,    0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.96,
					 0.95, 0.93,  0.9,   0.85,  0.8,  0.7,	0.6,  0.5 };

	struct plan_point last[2] = { 0 };

	printf("\nThe least density at a mean recall:\n%6s%18s%18s\n%6s%9s%9s%9s%9s  %s\n", "",
	       "a plan", "one for all", "recall", "density", "recall", "density", "recall",
	       "method");
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
		struct plan_point plan = plan_greedy(&x->t, levels[i], x->scratch);
		size_t setting = plan_cheapest_uniform(&x->t, levels[i]);
		struct plan_point all = plan_mean_uniform(&x->t, setting);

		if (plan.density == last[0].density && all.density == last[1].density)
			continue;
		last[0] = plan;
		last[1] = all;
		printf("%6g%9.4f%9.4f%9.4f%9.4f  %s\n", levels[i], plan.density, plan.recall,
		       all.density, all.recall, x->s->method[setting]->name);
	}
}

/* ---- the calibration ---- */

static enum ar_status write_plan(const struct found *x, const char *out, struct ar_err *err)
{
	struct outfile f;
	enum ar_status st = outfile_open(&f, out, err);

	if (st)
		return st;
	put_plan(f.f, x);
	st = outfile_commit(&f, err);
	outfile_release(&f);
	return st;
}

static enum ar_status find_plan(struct found *x, const struct calib_input *in, const char *out,
				struct ar_err *err)
{
	enum ar_status st = plan_measure(x->s, in, &x->a->sample, &x->t, &x->layer, err);

	if (st)
		return st;
	x->choice = calloc(x->t.n_layer, sizeof *x->choice);
	x->scratch = calloc(x->t.n_layer, sizeof *x->scratch);
	if (!x->choice || !x->scratch)
		return ar_nomem(err);
	choose_point(x);
	st = write_plan(x, out, err);
	if (st)
		return st;
	print_layers(x, out);
	print_curve(x);
	return AR_OK;
}

static enum ar_status run_plan(const void *arg, const struct calib_input *in, const char *out,
			       struct ar_err *err)
{
	const struct args *a = arg;
	struct plan_settings s = { 0 };
	struct found x = { .a = a, .s = &s };
	enum ar_status st;

	if (!a->methods)
		return ar_fail(err, AR_USAGE,
			       "no method to choose from; add --method LIST, such as "
			       "compact-fp,flashprefill");
	st = plan_settings_init(&s, a->methods, err);
	if (!st)
		st = find_plan(&x, in, out, err);
	free(x.t.at);
	free(x.layer);
	free(x.choice);
	free(x.scratch);
	plan_settings_release(&s);
	return st;
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "method", .type = OPT_STR, .off = OFF(methods), .arg = "LIST",
	  .help = "methods to choose from, separated by commas, and dense; a threshold that is not "
		  "given is varied" },
	{ .name = "recall", .type = OPT_REAL, .off = OFF(recall), .arg = "SHARE", .def = "0.95",
	  .max = 1, .help = "share of the attention that each layer keeps at least" },
	PLAN_SAMPLE_OPTS(OFF(sample)),
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_plan = {
	.name = "plan",
	.title = "a method for each layer, for --method plan=FILE",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run = run_plan,
};
