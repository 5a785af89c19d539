/* SPDX-License-Identifier: Apache-2.0 */
/* Settings measured by the answers of a model with real weights, as 'attnreplay eval' does. */
#ifndef AR_TUNE_PROMPTS_H
#define AR_TUNE_PROMPTS_H

#include "src/eval/eval.h"
#include "src/tune/tune.h"

/* The sample of tune_measure_prompts().  Zero it first. */
struct tune_prompts {
	struct eval e; /* run 0 is dense attention, run 1 the setting that is measured */
	struct eval_summary dense; /* after the first measure */
};

/* After a command line is parsed: as eval_options_set_tasks(), of dense attention and the methods
 * to tune.  AR_USAGE. */
enum ar_status tune_prompts_set(struct run_options *o, const char *methods, const char *tasks,
				struct ar_err *err);

/* Load the model and the prompts.  c: as of eval_load(), with a parsed() that calls
 * tune_prompts_set().  Release *p also after a failure. */
enum ar_status tune_prompts_open(struct tune_prompts *p, struct run_command *c, int argc,
				 char **argv, struct ar_err *err);
void tune_prompts_release(struct tune_prompts *p);

/* After a measure, describe the sample and the answers of dense attention. */
void tune_prompts_print(const struct tune_prompts *p, const struct tune_goal *g, FILE *f);
/* Add the same to an object.  False: no memory. */
bool tune_prompts_json(const struct tune_prompts *p, cJSON *o);

#endif
