/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step logs: the steps in which a real engine served a trace, and the times of its requests.
 *
 * Forms of a file (see attnreplay-import-engine(1)):
 * - JSON lines: a header {"engine": ...}, then {"begin": ...} for each step and {"request": ...}
 *   for each request, as contrib/vllm_steps.py writes them.
 * - One JSON object with "steps": [[begin s, end s, [tokens of each request]], ...] and, if there
 *   are such, "ttft" and "tpot": ms of each request.
 * - A bare JSON array of such steps.
 * - Outcomes without steps: the JSON of `vllm bench serve --save-detailed`
 *   (vllm/benchmarks/serve.py).
 * - The same: the records of aiperf (profile_export.jsonl), one request a line.
 * A file may be compressed by gzip or zstd.
 */
#ifndef AR_ENGINE_LOG_H
#define AR_ENGINE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/probe.h"

/* Parts of a step of the host.  A log without parts has -1 for each. */
enum engine_part {
	ENGINE_SCHEDULE, /* choose the batch */
	ENGINE_EXECUTE,	 /* prepare inputs and launch kernels */
	ENGINE_WAIT,	 /* wait for the sampled tokens of a batch */
	ENGINE_UPDATE,	 /* record the tokens in the scheduler */
	ENGINE_PARTS
};

/* One call of the engine's step().  Times in ns from the log's zero. */
struct engine_step {
	int64_t begin_ns, end_ns;
	size_t first, n_entry; /* its entries: entry[first] to entry[first + n_entry - 1] */
	int64_t part_ns[ENGINE_PARTS];
	int64_t seen_ns; /* when clients had its tokens, on average; -1: the log does not say */
	uint32_t n_seen; /* seen_ns >= 0: tokens that it recorded */
};

/* A request that a step ran.  req: index into request[], -1: the log does not say. */
struct engine_entry {
	uint32_t n_tok;
	int32_t req;
};

/* Times in ns from the log's zero; -1: the log does not say. */
struct engine_request {
	uint32_t prompt_tok, output_tok; /* 0: the log does not say */
	int64_t arrival_ns, first_token_ns, last_token_ns;
	int64_t ttft_ns, tpot_ns; /* tpot_ns -1 also with a single output token */
	int64_t admit_ns;	  /* host time of adding the request to the engine */
	int64_t received_ns;	  /* when the engine had it, before it was added */
};

struct engine_log {
	char *name;		      /* of the file */
	char *engine, *version, *gpu; /* "vllm", "0.24.0"; NULL: the log does not say */
	char *model_json;	      /* the model's config.json; NULL: the log does not say */
	int async;		      /* asynchronous scheduling: 1, 0; -1: the log does not say */
	bool http;		      /* clients reach the engine by HTTP */
	struct probe probe;	      /* of its host; 0: the log does not say */
	int64_t max_batched_tok, max_seqs; /* 0: the log does not say */
	int64_t *capture_size; /* [n_capture_size] tokens of the CUDA graphs, ascending */
	size_t n_capture_size;
	struct engine_step *step;	/* [n_step] in order of begin */
	struct engine_entry *entry;	/* [n_entry] */
	struct engine_request *request; /* [n_request] */
	size_t n_step, n_entry, n_request;
};

/* Read a log; "-" is standard input, the caller closes the log.  AR_DATA: bad contents; the message
 * names the file and the line; in a file of one value, the number of the step or request. */
enum ar_status engine_log_open(struct engine_log **out, const char *path, struct ar_err *err);
void engine_log_close(struct engine_log *log); /* NULL is fine */

#endif
