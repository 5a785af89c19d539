/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attnreplay eval: runs with real weights whose requests are prompts with known answers.
 *
 * The tasks file is the trace of the runs.  So scheduling, methods, latencies and the record are as
 * in 'attnreplay run'.  The model is given the tokens of the answers (teacher forcing).  By
 * induction greedy decoding gives an answer exactly if each of its tokens is the most likely one.
 */
#ifndef AR_EVAL_H
#define AR_EVAL_H

#include "src/eval/results.h"
#include "src/run/run.h"

struct eval_args {
	char *tasks, *json;
};

/* After eval_load() run i of r is ready for eval_run().  Run 0 is dense. */
struct eval {
	struct run r;
	struct eval_args a;
	struct opt_group own;	      /* of the command */
	const struct prompt **prompt; /* [r.trace->n] of each request, in r.prompts */
	struct eval_results results;
	struct run_watch watch;
	size_t at; /* the run of this process */
};

/* The vocabulary of the model, of all ranks. */
static inline int eval_vocab(const struct eval *e)
{
	return e->r.in.model.vocab * e->r.in.model.tp;
}

/* options.c.  set_tasks: after a command line is parsed, let the tasks be trace and prompts, and
 * dense attention the first method.  AR_USAGE.  set: as parsed() of struct run_command. */
extern const struct opt eval_opts[]; /* of struct eval_args */
enum ar_status eval_options_set_tasks(struct run_options *o, const char *tasks, struct ar_err *err);
enum ar_status eval_options_set(const struct run_command *c, struct run_options *o,
				struct ar_err *err);
/* The command itself, with a its own options. */
struct run_command eval_command(struct eval_args *a);

/* watch.c: give the runs of e the texts of their requests, and score their answers. */
struct run_watch eval_watch(struct eval *e);

/* Parse the command line, and load all that runs need.  c: whose own options are released with *e,
 * and whose parsed() sets the tasks.  AR_DATA: a prompt does not fit the model; the message names
 * file and line.  *e is zero before.  Release it also after a failure. */
enum ar_status eval_load(struct eval *e, struct run_command *c, int argc, char **argv,
			 struct ar_err *err);
void eval_release(struct eval *e);

/* Run method i, in a process of its own where a GPU may be used.  The dense method runs before the
 * methods that are compared with it. */
enum ar_status eval_run(struct eval *e, size_t i, struct eval_summary *out, struct ar_err *err);
/* The same for another method in place i > 0, whose results are replaced. */
enum ar_status eval_try(struct eval *e, size_t i, const char *method, struct eval_summary *out,
			struct ar_err *err);

/* eval_print.c: write a table of the runs that ended, if there are any.  AR_IO. */
enum ar_status eval_print(const struct eval *e, struct ar_err *err);

/* eval_json.c: add the results of run i to its object in --json.  False: no memory. */
bool eval_json(void *ctx, size_t i, struct cJSON *o);

/* Answers of the dense run that the tasks file tells of. */
struct eval_expected {
	size_t n, agree, only_here, only_in_file;
};
struct eval_expected eval_expected(const struct eval *e);

#endif
