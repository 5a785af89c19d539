/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of whole prefills under methods, on random or captured inputs. */
#ifndef AR_BENCH_SESSION_H
#define AR_BENCH_SESSION_H

#include "src/bench/bench.h"
#include "src/bench/bench_match.h"
#include "src/bench/bench_prefill.h"

/* Layers whose inputs stay in memory.  Of further layers only the last one read does. */
enum { BENCH_INPUTS = 16 };

struct bench_session {
	const struct bench_args *a;
	struct bench_device *device; /* NULL: dry run */
	struct capture *capture;     /* NULL: random inputs */
	int *layer;		     /* [n_layer] indices of captured layers; one if random */
	int n_layer;
	struct bench_input input[BENCH_INPUTS]; /* inputs read so far, data NULL: not read;
							 * the last slot is for layer[last_layer] */
	int last_layer;
};

/* bench_session_open() opens the capture and finds its layers.  Call bench_session_device() after
 * all checks: it opens the GPU, except in a dry run. */
enum ar_status bench_session_open(struct bench_session *s, const struct bench_args *a,
				  struct ar_err *err);
enum ar_status bench_session_device(struct bench_session *s, struct ar_err *err);
void bench_session_close(struct bench_session *s);

/* Set shape's heads to the heads of one of tp GPUs.  Before, shape has the heads of all GPUs in the
 * paper's model, or 0 without a model.  Options win; then the model, if there is no capture or it
 * fits (bench_input_fits()); then the capture. */
enum ar_status bench_session_heads(const struct bench_session *s, int64_t tp,
				   struct bench_shape *shape, struct ar_err *err);

/* Which chunks of the prefill: the last one, or a number of samples, 0: all. */
struct bench_chunks {
	bool last;
	int samples;
};

/* Times are sums over the chunks that the samples stand for and means over the layers, in us; NaN
 * in a dry run.  Counts are of all samples and layers, weighted alike. */
struct bench_sum {
	double us[BENCH_PART_N], core_us, event_us;
	struct selection_count count;
	double rel_l2, dense_l2; /* the largest; NaN: none */
	double kept;		 /* of the dropper, mean over chunks and layers; NaN: none */
	int page_tok, n_chunk, n_sample;
	bool traced;
	bool off;     /* some output differs from double precision over the
					 * selection */
	bool refused; /* after a failure: the method is at fault */
};

/* The method to run for a table's method: that of --use, or the same. */
const char *bench_session_method(const struct bench_session *s, const char *method);

/* Check that method is one, and that there are kernels for the shape whose indices hold it.  Sets
 * *page_tok to the method's.  *refused, unless NULL: the method is at fault. */
enum ar_status bench_session_check(const char *method, const struct bench_shape *shape,
				   int *page_tok, bool *refused, struct ar_err *err);
/* Check that the method's dropper, if it has one, acts after each layer of the input. */
enum ar_status bench_session_check_drop(const struct bench_session *s, const char *method,
					struct ar_err *err);
enum ar_status bench_session_run(struct bench_session *s, const char *method,
				 const struct bench_shape *shape, struct bench_chunks chunks,
				 struct bench_sum *sum, struct ar_err *err);

/* Sparsity in percent of the blocks before the chunks.  selected: before unions; else after them,
 * which keep more. */
double bench_sparsity(const struct selection_count *c, bool selected);

/* Tune the method's threshold until it leaves out as much as wanted over these chunks and all
 * layers.  Nothing is timed.  Not in a dry run. */
enum ar_status bench_session_match(struct bench_session *s, const char *method,
				   const struct bench_shape *shape, struct bench_chunks chunks,
				   struct bench_goal goal, struct bench_match *out,
				   struct ar_err *err);

/* For rows and headings. */
const char *bench_session_input(const struct bench_session *s); /* "random" or the capture */
int64_t bench_session_tok(const struct bench_session *s);	/* its tokens; 0: random */
/* Copies of the capture's heads in shape; 0: random. */
int64_t bench_session_repeats(const struct bench_session *s, const struct bench_shape *shape);
void bench_session_print(const struct bench_session *s, const struct bench_shape *shape);

#endif
