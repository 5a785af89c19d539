/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of methods, and the density and recall of each in the layers of captures. */
#ifndef AR_PLAN_MEASURE_H
#define AR_PLAN_MEASURE_H

#include "kernels/methods/plan.h"
#include "src/calibrate/calibrate.h"
#include "src/calibrate/plan_search.h"

/* Methods to choose from.  The first is dense; no two have equal parameters. */
struct plan_settings {
	struct method **method; /* [n] owned */
	size_t n, cap;
	int page_tok; /* of all settings */
};

/* Take the methods of list.  A method whose selector has a threshold without a value in list
 * becomes several, with values over the threshold's range.  METHOD@MODEL, with the parameters of a
 * model, stays one method.  AR_USAGE: as from method_parse(), or their blocks have different sizes.
 * Release *s even after a failure. */
enum ar_status plan_settings_init(struct plan_settings *s, const char *list, struct ar_err *err);
void plan_settings_release(struct plan_settings *s);

/* Add a setting, if none has its parameters yet.  *at: where it is in s->method.  AR_USAGE: as from
 * method_parse(). */
enum ar_status plan_settings_add(struct plan_settings *s, const char *text, size_t *at,
				 struct ar_err *err);

/* Whether the text of a method assigns the parameter. */
bool plan_setting_states(const char *text, const char *key);

/* Results of dense attention in the chunks of a sample, in their order.  They are kept from one
 * plan_measure() to the next one of the same captures, sample and page size. */
struct plan_dense {
	struct plan_dense_chunk {
		bf16_t *out; /* [rows][q_heads][head_dim] */
		float *lse;  /* [rows][q_heads] */
	} * chunk;	     /* [n] */
	size_t n, cap;
};

void plan_dense_release(struct plan_dense *d);

/* Rows [from, to) of a prompt that is the start of a capture. */
struct plan_chunk {
	size_t capture;
	int64_t from, to, prompt;
};

/* Chunks and layers of captures to measure on. */
struct plan_sample {
	int64_t chunk;		     /* tokens of a chunk */
	int64_t n_chunk;	     /* chunks, evenly spaced; the last ends with the tokens */
	const struct plan_chunk *at; /* [n_at] in their place; NULL: none */
	size_t n_at;
	int64_t layers;		  /* of the model; 0: up to the last captured */
	const struct rope *rope;  /* of the model, for captures that do not state theirs; or NULL */
	const bool *ignore;	  /* [CAPTURE_MAX_LAYER + 1] layers not to measure in; NULL: none */
	struct plan_dense *dense; /* kept by the caller; NULL: by no one */
};

/* Rows of an option table for a plan_sample at this offset. */
/* clang-format off */
#define PLAN_SAMPLE_OPTS(at) \
	{ .name = "chunk", .type = OPT_INT, .off = (at) + offsetof(struct plan_sample, chunk), \
	  .arg = "N", .def = "512", .min = 1, .max = CAPTURE_MAX_TOK, \
	  .help = "tokens of a chunk to measure on" }, \
	{ .name = "chunks", .type = OPT_INT, .off = (at) + offsetof(struct plan_sample, n_chunk), \
	  .arg = "N", .def = "2", .min = 1, .max = 1 << 20, \
	  .help = "chunks of each capture, evenly spaced; the last ends with its tokens" }, \
	{ .name = "layers", .type = OPT_INT, .off = (at) + offsetof(struct plan_sample, layers), \
	  .arg = "N", .def = "0", .max = CAPTURE_MAX_LAYER + 1, \
	  .help = "layers of the model, for methods with a file; 0: up to the last captured" }
/* clang-format on */

/* The chunks of capture number c, [*n]; the caller frees them.  NULL: no memory. */
struct plan_chunk *plan_chunks(const struct calib_input *in, const struct plan_sample *how,
			       size_t c, size_t *n);

/* Measure all settings in all layers of the captures: means over heads, rows and chunks.  *layer:
 * the numbers of the layers, ascending, [t->n_layer].  The caller frees it and t->at, even after a
 * failure.  AR_USAGE: there is no layer to measure in, or how->layers lacks one. */
enum ar_status plan_measure(const struct plan_settings *s, const struct calib_input *in,
			    const struct plan_sample *how, struct plan_table *t, int **layer,
			    struct ar_err *err);

#endif
