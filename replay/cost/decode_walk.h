/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of a decode over its keys, in an engine that attends for chunks and decodes in one
 * launch.
 *
 * Such a launch splits keys only as far as the rows of its longest chunk leave multiprocessors
 * idle: into two parts where they fill a half of them, into three where they fill a third.  Where
 * they fill all, one thread block walks all keys of a decode, and the launch lasts at least as long
 * as the walk of the longest one.  Where: FlashAttention 3, hopper/heuristics.h and flash_api.cpp,
 * which vLLM calls with prompts in a batch.
 */
#ifndef AR_DECODE_WALK_H
#define AR_DECODE_WALK_H

#include <stdio.h>

#include "base/jsonval.h"
#include "base/status.h"
#include "model/model.h"
#include "replay/sched/batch.h"

/* How an engine walks on a GPU.  tile_rows: query rows of a thread block, of which the query heads
 * of a KV head share one.  compute: share of a multiprocessor's peak rate. */
struct decode_walk {
	int64_t sms, tile_rows; /* sms 0: the engine has no such launches */
	double compute;
};

/* Keys of the longest decode that one thread block walks beside the chunks of b; 0 without chunks
 * or decodes.  fill_rows: of a chunk that leaves no multiprocessor idle; 0: never split. */
double decode_walk_keys(const struct batch *b, double fill_rows);
/* The same, of `keys` of the longest decode beside a longest chunk of `rows`. */
double decode_walk_part(uint32_t keys, uint32_t rows, double fill_rows);

/* ns of the walk in a layer like l that attends to all keys, on a GPU of so many TFLOP/s. */
int64_t decode_walk_ns(const struct decode_walk *w, double tflops, const struct layer_spec *l,
		       const struct batch *b);

/* Read the member "walk" of an engine in a GPU's file, which may be missing.  prefix: of its key,
 * with a dot.  AR_DATA: it is bad; the message names path and key. */
enum ar_status decode_walk_load(struct decode_walk *w, const cJSON *engine, const char *prefix,
				const char *path, struct ar_err *err);
/* Write it after other members, if the engine has it. */
void decode_walk_put(const struct decode_walk *w, FILE *f);

#endif
