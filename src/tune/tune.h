/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tune methods to one figure, so that they are compared at equal accuracy: the threshold of each
 * method's selector is searched until the figure, measured on a sample, is the wanted one.
 */
#ifndef AR_TUNE_H
#define AR_TUNE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/calibrate/calibrate.h"
#include "src/calibrate/plan_measure.h"

/* X(name, JSON key, heading): a figure of a method's setting in a sample.  NaN: not measured. */
#define TUNE_FIGURES(X) \
	X(recall, "recall", "recall") \
	X(least, "recall_least_layer", "least") \
	X(most, "recall_most_layer", "most") \
	X(rel_l2, "rel_l2", "rel L2") \
	X(selected, "density_selected", "selected") \
	X(executed, "density_executed", "executed") \
	X(logprob, "logprob_diff", "logprob") \
	X(exact, "exact", "exact")

struct tune_figures {
#define X(name, key, heading) double name;
	TUNE_FIGURES(X)
#undef X
};
extern const struct tune_figures tune_unknown; /* all are NaN */

/* The sample of a figure: layers of captures alone, or a model that answers prompts. */
enum tune_sample { TUNE_CAPTURES = 1, TUNE_PROMPTS = 2 };

/* Measure n settings, as --method takes them, on a sample of the target's kind.  out: [n]. */
typedef enum ar_status tune_measure_fn(void *sample, char *const *setting, size_t n,
				       struct tune_figures *out, struct ar_err *err);

/* A figure that methods can be tuned to; a row of the table in target.c. */
struct tune_target {
	const char *name;  /* "recall" */
	const char *title; /* one line */
	size_t figure;	   /* offset in tune_figures */
	double min, max;   /* of the wanted figure */
	double near;	   /* how near is near enough, if the user does not say */
	bool least;	   /* at least the wanted figure: see threshold.h */
	enum tune_sample sample;
	tune_measure_fn *measure;
};
extern const struct tune_target tune_targets[]; /* ends with name == NULL */

struct tune_goal {
	const struct tune_target *target;
	double want, near;
};

/* Read "recall=0.95".  samples: bits of enum tune_sample, the samples that there are.  near: 0, the
 * target's own.  AR_USAGE: no target of these samples, or a value out of range. */
enum ar_status tune_goal_parse(struct tune_goal *g, const char *text, unsigned samples, double near,
			       struct ar_err *err);

enum tune_how {
	TUNE_REACHED, /* by a value of the threshold */
	TUNE_BEYOND,  /* no: the figures at both ends of its range are on one side of the wanted */
	TUNE_JUMPED,  /* no: the figure jumps over the wanted one */
	TUNE_GIVEN,   /* the method states its threshold, or is a plan of layers or has a dropper:
		       * it is left as it is */
	TUNE_FIXED,   /* the method has no threshold */
};

/* A method and the setting whose figure is nearest to the wanted one. */
struct tuned {
	const char *method;    /* as given, borrowed */
	char *setting;	       /* as --method takes it, owned */
	const char *threshold; /* name of the parameter that was searched; NULL: none */
	double value;	       /* of the parameter */
	enum tune_how how;
	bool bends; /* the figure does not only rise, or only fall, with the value */
	int steps;  /* values measured */
	struct tune_figures figures;
};

/* Tune n methods.  out: [n], release it even after a failure.  AR_USAGE: as from method_parse(). */
enum ar_status tune_methods(const struct tune_goal *g, void *sample, char *const *method, size_t n,
			    struct tuned *out, struct ar_err *err);
void tuned_release(struct tuned *t, size_t n);

double tune_figure(const struct tune_goal *g, const struct tune_figures *f);

/* Write a table of tuned methods, with the figures that any method has.  Below it write a line for
 * each method that has not the wanted figure. */
void tune_print(const struct tune_goal *g, const struct tuned *t, size_t n, FILE *f);

/* A tuned method as a JSON object, and n tuned methods as an array.  NULL: no memory. */
cJSON *tuned_json(const struct tuned *t);
cJSON *tune_json(const struct tuned *t, size_t n);

/* ---- samples ---- */

/* Chunks of captures, see tune_captures.c. */
enum { TUNE_PAGE_SIZES = 2 };
struct tune_captures {
	const struct calib_input *in;
	struct plan_sample how;			  /* dense is set by the measure */
	struct plan_dense dense[TUNE_PAGE_SIZES]; /* kept between the steps */
};

/* Prompts: see src/tune/tune_prompts.h. */
tune_measure_fn tune_measure_captures, tune_measure_prompts;
void tune_captures_release(struct tune_captures *c);

#endif
