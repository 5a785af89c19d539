/* SPDX-License-Identifier: Apache-2.0 */
/* Tune methods to leave out as much as in a paper, which had other inputs. */
#ifndef AR_BENCH_MATCH_H
#define AR_BENCH_MATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* What is to be left out, in percent of the blocks before the chunks. */
struct bench_goal {
	double sparsity;
	bool selected;			/* by the selector; else after the union */
};

/* What a method leaves out, in percent. */
typedef enum ar_status bench_sparsity_fn(void *ctx, const char *method, double *sparsity,
					 struct ar_err *err);

enum bench_match_how {
	BENCH_MATCH_STATED,		/* near enough as given */
	BENCH_MATCH_TUNED,		/* near enough with another threshold */
	BENCH_MATCH_NONE,		/* with none, or there is no threshold */
};

/* Longest text of a method, with a file or two, and its end. */
enum { BENCH_MATCH_TEXT = 8192 };

struct bench_match {
	enum bench_match_how how;
	char method[BENCH_MATCH_TEXT];	/* the nearest one */
	const char *threshold;		/* name of the parameter; NULL: none was changed */
	double value;			/* of the parameter */
	double sparsity;		/* of the method */
};

/* Near enough is within this of what is wanted. */
extern const double bench_match_near;

/* AR_USAGE: the method is wrong; else what sparsity fails with. */
enum ar_status bench_match(const char *method, double want, bench_sparsity_fn *sparsity, void *ctx,
			   struct bench_match *out, struct ar_err *err);

/* Random blocks under the union and executor of a method, for what they cost.  AR_USAGE: these take
 * no blocks, or what is left of others after the union is not known. */
enum ar_status bench_match_random(const char *method, struct bench_goal goal,
				  char text[BENCH_MATCH_TEXT], struct ar_err *err);

#endif
