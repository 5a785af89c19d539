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

#include "replay/sched/batch.h"

/* Keys of the longest decode that one thread block walks beside the chunks of b; 0 without chunks
 * or decodes.  fill_rows: of a chunk that leaves no multiprocessor idle; 0: never split. */
double decode_walk_keys(const struct batch *b, double fill_rows);

#endif
