/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of whole prefills under methods, on random or captured inputs. */
#ifndef AR_BENCH_SESSION_H
#define AR_BENCH_SESSION_H

#include "src/bench/bench.h"
#include "src/bench/bench_match.h"
#include "src/bench/bench_prefill.h"

/* Layers that are kept; of others the last one read is. */
enum { BENCH_SOURCES = 16 };

struct bench_session {
	const struct bench_args *a;
	struct bench_device *device;	/* NULL: dry run */
	struct capture *capture;	/* NULL: random inputs */
	int *layer;			/* [n_layer] indices of captured layers; one if random */
	int n_layer;
	struct bench_source source[BENCH_SOURCES];	/* read so far, data NULL: not yet; the
							 * last one is of layer[last_layer] */
	int last_layer;
};

/* The capture and its layers; then, when all else is right, the device, but for a dry run. */
enum ar_status bench_session_open(struct bench_session *s, const struct bench_args *a,
				  struct ar_err *err);
enum ar_status bench_session_device(struct bench_session *s, struct ar_err *err);
void bench_session_close(struct bench_session *s);

/* The heads of one of tp GPUs.  Without options that say which, they are shape's, of all GPUs,
 * where there is no capture or it fits (bench_source_fits()), else the capture's.  Shape has none,
 * 0, where there is no model to compare with. */
enum ar_status bench_session_heads(const struct bench_session *s, int64_t tp,
				   struct bench_shape *shape, struct ar_err *err);

/* Which chunks of the prefill: the last one, or a number of samples, 0: all. */
struct bench_span {
	bool last;
	int samples;
};

/* Times are sums over the chunks that the samples stand for and means over the layers, in us; NaN
 * in a dry run.  Counts are of all samples and layers, weighted alike. */
struct bench_sum {
	double us[BENCH_PART_N], core_us, event_us;
	struct selection_count count;
	double rel_l2, dense_l2;	/* the largest; NaN: none */
	int page_tok, n_chunk, n_sample;
	bool traced;
	bool off;			/* some output is not what the selection gives */
	bool refused;			/* after a failure: it was the method's */
};

/* What is run where a table has method: --use may say another. */
const char *bench_session_method(const struct bench_session *s, const char *method);

/* The method's name, and whether there are kernels for the shape whose indices hold it; *page_tok
 * becomes the method's.  *refused, where it is not NULL, says that it is the method which is wrong. */
enum ar_status bench_session_check(const char *method, const struct bench_shape *shape,
				   int *page_tok, bool *refused, struct ar_err *err);
enum ar_status bench_session_run(struct bench_session *s, const char *method,
				 const struct bench_shape *shape, struct bench_span span,
				 struct bench_sum *sum, struct ar_err *err);

/* What is left out, in percent of the blocks before the chunks: those that the selector drops, or
 * that are not executed, since unions add some. */
double bench_sparsity(const struct selection_count *c, bool selected);

/* Tune the method's threshold until it leaves out as much as wanted over these chunks and all
 * layers.  Nothing is timed.  Not in a dry run. */
enum ar_status bench_session_match(struct bench_session *s, const char *method,
				   const struct bench_shape *shape, struct bench_span span,
				   struct bench_goal goal, struct bench_match *out,
				   struct ar_err *err);

/* For rows and headings. */
const char *bench_session_input(const struct bench_session *s);	/* "random" or the capture */
int64_t bench_session_tok(const struct bench_session *s);	/* its tokens; 0: random */
/* How often its heads come; 0: random. */
int64_t bench_session_repeats(const struct bench_session *s, const struct bench_shape *shape);
void bench_session_print(const struct bench_session *s, const struct bench_shape *shape);

#endif
