/* SPDX-License-Identifier: Apache-2.0 */
/* Option --match: before a run, the methods are tuned to one figure on its captures. */
#ifndef AR_RUN_MATCH_H
#define AR_RUN_MATCH_H

#include "src/tune/tune.h"

struct run;

/* The sample is at most this large, as references measure it.  Chunks are no longer than those of
 * the run. */
enum { MATCH_CAPTURES = 2, MATCH_LAYERS = 4, MATCH_CHUNKS = 2, MATCH_CHUNK_TOK = 2048 };

struct run_match {
	char **given;	     /* [n_methods] --method as written */
	struct tuned *tuned; /* [n_tuned] */
	size_t *method;	     /* [n_tuned] which of the n_methods it is, ascending */
	size_t n_tuned;
	/* The sample. */
	struct calib_input in;
	struct tune_captures c;
	int layer[MATCH_LAYERS], n_layer; /* of the captures */
	bool ignore[CAPTURE_MAX_LAYER + 1];
};

/* Tune the methods that are left to run, and give the plans of r the settings.  Methods that state
 * their threshold or have none, plans of layers, and methods with a dropper stay as they are.  Does
 * nothing without --match. */
enum ar_status run_match(struct run *r, struct ar_err *err);
void run_match_release(struct run *r);

/* The method of run i as written, whose key it is. */
const char *run_method_text(const struct run *r, size_t i);

/* How the method of run i was tuned; NULL: it was not. */
const struct tuned *run_tuned(const struct run *r, size_t i);

/* Print what was tuned, for the header. */
void run_print_match(const struct run *r);

#endif
