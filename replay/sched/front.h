/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front end of an engine, which rejects requests that arrive over its queue limits, with HTTP
 * 503: vLLM 0.33.0, v1/engine/async_llm.py, check_admission().
 *
 * It sees outputs when the engine has recorded them.  A request that arrives at the same time comes
 * after them.
 */
#ifndef AR_FRONT_H
#define AR_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct front_limits {
	bool has_reqs, has_tok;
	int64_t reqs; /* has_reqs: unfinished requests, waiting and running */
	int64_t tok;  /* has_tok: prompt tokens of requests without an output, at which the next
		       * request is rejected */
};

struct front;

/* For a trace of n requests.  *limits outlives *out. */
enum ar_status front_open(struct front **out, const struct front_limits *limits, size_t n,
			  struct ar_err *err);
void front_close(struct front *f); /* NULL is fine */

/* A request of prompt_tok tokens arrives.  False: it is rejected, and why[n] gets the reason.
 * Requests arrive by time. */
bool front_admits(struct front *f, int64_t at_ns, uint32_t prompt_tok, char *why, size_t n);
/* The first output of an admitted request, or its last one; by time. */
void front_first(struct front *f, int64_t at_ns, uint32_t prompt_tok);
void front_last(struct front *f, int64_t at_ns);

#endif
