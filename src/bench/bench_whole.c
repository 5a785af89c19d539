/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_whole.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/run.h"

enum { NUMBER = 32, ARGS_MAX = 32 };

/* The command line that a user would write, but for the trace. */
struct args {
	char *v[ARGS_MAX];
	char number[8][NUMBER];
	int n, n_number;
};

static void whole_add(struct args *a, const char *name, const char *value)
{
	a->v[a->n++] = (char *)(uintptr_t)name;
	a->v[a->n++] = (char *)(uintptr_t)value;
}

static void add_number(struct args *a, const char *name, int64_t value)
{
	char *to = a->number[a->n_number++];

	snprintf(to, NUMBER, "%" PRId64, value);
	whole_add(a, name, to);
}

static void make_args(struct args *a, const struct bench_whole *w, const char *method,
		      const char *random)
{
	*a = (struct args){ 0 };
	whole_add(a, "--trace", "equal requests");
	whole_add(a, "--backend", "cuda");
	whole_add(a, "--engine-defaults", "none");
	whole_add(a, "--model", w->model);
	whole_add(a, "--method", method);
	whole_add(a, "--capture", w->capture ? w->capture : random);
	if (w->capture)
		whole_add(a, "--extend", "tile");
	add_number(a, "--tp", w->tp);
	if (w->tp > 1) /* kernels alone are measured */
		whole_add(a, "--comm", "none");
	whole_add(a, "--host-speed", "preset");
	add_number(a, "--max-num-batched-tokens", w->budget);
	add_number(a, "--max-num-seqs", w->batch < w->budget ? w->batch : w->budget);
	add_number(a, "--max-model-len", w->context + 1);
	add_number(a, "--device", w->device);
	whole_add(a, "--accuracy", "0");
}

static struct trace equal_requests(struct request *req, const struct bench_whole *w)
{
	for (int64_t i = 0; i < w->batch; i++) {
		req[i] = request_none;
		req[i].prompt_tok = (uint32_t)w->context;
		req[i].output_tok = 1;
	}
	return (struct trace){ .req = req,
			       .n = (size_t)w->batch,
			       .name = (char *)(uintptr_t) "equal requests",
			       .format = (char *)(uintptr_t) "none" };
}

static enum ar_status run_prefill(struct run *r, const struct args *a,
				  struct bench_whole_result *out, struct ar_err *err)
{
	enum ar_status st = run_options_parse(&r->session.o, NULL, a->n, (char **)(uintptr_t)a->v,
					      err);

	if (!st)
		st = run_load(r, err);
	if (!st)
		st = run_method_apart(r, 0, 0, err);
	if (!st && r->out.figures.ok < r->out.figures.of)
		st = ar_fail(err, AR_USAGE, "%" PRId64 " of %" PRId64 " requests were rejected",
			     r->out.figures.of - r->out.figures.ok, r->out.figures.of);
	if (!st)
		*out = (struct bench_whole_result){
			(double)r->out.figures.ok / r->out.figures.done_per_s, r->out.figures.kept
		};
	return st;
}

enum ar_status bench_whole_run(const struct bench_whole *w, const char *method,
			       struct bench_whole_result *out, struct ar_err *err)
{
	struct request *req = calloc((size_t)w->batch, sizeof *req);
	struct trace trace;
	struct run r = { .in.lent_trace = &trace, .session.point = "prefill" };
	char random[NUMBER];
	struct args a;
	enum ar_status st = req ? AR_OK : ar_nomem(err);

	snprintf(random, sizeof random, "random:%" PRId64, w->seed);
	make_args(&a, w, method, random);
	if (!st) {
		trace = equal_requests(req, w);
		st = run_prefill(&r, &a, out, err);
	}
	run_unload(&r);
	free(req);
	return st;
}
