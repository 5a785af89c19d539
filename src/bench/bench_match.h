/* SPDX-License-Identifier: Apache-2.0 */
/* Tune a method until it leaves out as many blocks as the paper states.  Its own threshold may
 * leave out more or fewer, as the inputs differ from the paper's. */
#ifndef AR_BENCH_MATCH_H
#define AR_BENCH_MATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The sparsity to reach: percent of the blocks before the chunks that are left out. */
struct bench_goal {
	double sparsity;
	bool selected; /* left out by the selector; false: after the union */
};

/* Measure the sparsity of a method, in percent. */
typedef enum ar_status bench_sparsity_fn(void *ctx, const char *method, double *sparsity,
					 struct ar_err *err);

enum bench_match_how {
	BENCH_MATCH_STATED, /* near enough as given */
	BENCH_MATCH_TUNED,  /* near enough with another threshold */
	BENCH_MATCH_NONE,   /* with none, or there is no threshold */
};

/* Size of a method's text with its final NUL: room for a path or two. */
enum { BENCH_MATCH_TEXT = 8192 };

struct bench_match {
	enum bench_match_how how;
	char method[BENCH_MATCH_TEXT]; /* the nearest one */
	const char *threshold;	       /* name of the parameter; NULL: none was changed */
	double value;		       /* of the parameter */
	double sparsity;	       /* of the method */
};

/* A match differs by at most this many percentage points. */
extern const double bench_match_near;

/* Find the variant of method whose sparsity is nearest to `want`.  AR_USAGE: the method is wrong;
 * else the status of sparsity(). */
enum ar_status bench_match(const char *method, double want, bench_sparsity_fn *sparsity, void *ctx,
			   struct bench_match *out, struct ar_err *err);

/* Write a method of random blocks with the goal's sparsity, under the same union and executor, to
 * time them.  AR_USAGE: the method takes no blocks, or the goal is set before a union whose result
 * is not known. */
enum ar_status bench_match_random(const char *method, struct bench_goal goal,
				  char text[BENCH_MATCH_TEXT], struct ar_err *err);

#endif
