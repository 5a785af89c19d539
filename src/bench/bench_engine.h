/* SPDX-License-Identifier: Apache-2.0 */
/* One layer's attention as in a replay: the method, groups, rows and activations of replay/engine.
 * The prompts are equal: all have the tokens of one input. */
#ifndef AR_BENCH_ENGINE_H
#define AR_BENCH_ENGINE_H

#include "replay/engine/attn_engine.h"
#include "src/bench/bench_case.h"
#include "src/bench/bench_input.h"

struct bench_engine {
	struct attn_engine engine; /* its only executed layer is 0 */
	struct blocks blocks;	   /* one group */
	struct rows_env rows;	   /* mem is on the host, owned */
	struct row_set host;	   /* one view: of bench_engine_rows() */
	struct plan *plan;
	int layer; /* number of the executed layer in the model */

	/* The objects that env points to. */
	struct backend_env env;
	struct model model;
	struct trace trace;
	struct capture *capture; /* of the input */
	struct plan methods;	 /* the plan without its dropper, which needs all layers */
	uint16_t *capture_of;
	int *captured_layer;

	struct batch_entry *entry; /* [batch] */
	uint32_t prompt;	   /* tokens of a prompt */
};

struct bench_engine_env {
	const struct bench_shape *shape; /* page_tok is ignored: the method has its own */
	const struct bench_input *input; /* its data outlives the engine */
	int max_row;			 /* of a chunk, over all requests */
	const struct gpu *gpu;		 /* the current device; NULL: run on the host */
	uint64_t seed;
};

/* Open the method, and give the requests pages for s->context tokens, shuffled.  Release *e, which
 * must not move, even after a failure.  AR_USAGE, AR_DATA: the method cannot be opened. */
enum ar_status bench_engine_open(struct bench_engine *e, const struct bench_engine_env *env,
				 const char *method, struct ar_err *err);
void bench_engine_release(struct bench_engine *e);

/* Use `method` from here on.  It may differ from the one before only in its selector's threshold,
 * on which neither state nor memory depends. */
enum ar_status bench_engine_use(struct bench_engine *e, const char *method, struct ar_err *err);

/* Build the rows of the chunk [ctx, ctx + n) of all requests in rows.mem.  *used: the bytes that
 * are filled.  tiles: the method that plans the tiles; NULL: the engine's own. */
enum ar_status bench_engine_rows(struct bench_engine *e, int ctx, int n, const struct method *tiles,
				 size_t *used, struct ar_err *err);

static inline const struct method *bench_engine_method(const struct bench_engine *e)
{
	return attn_engine_method(&e->engine, 0);
}

/* Its pages, of all requests. */
static inline const struct cache_group *bench_engine_group(const struct bench_engine *e)
{
	return attn_engine_group(&e->engine, 0);
}

#endif
