/* SPDX-License-Identifier: Apache-2.0 */
/* What is settled before a backend opens: which capture each request replays, which captured
 * layer stands for which layer of the model, and which layers are executed. */
#ifndef AR_PREPARE_H
#define AR_PREPARE_H

#include "model/model.h"
#include "replay/sched/sched.h"
#include "traces/capture/capture.h"

struct prepare_in {
	const struct trace *trace;
	const struct sched_limits *limits;
	const struct model *model;		/* of one rank, if split */
	int whole_q_heads, whole_kv_heads;	/* of the model before the split */
	const struct capture_info *const *info;	/* of n_capture captures */
	size_t n_capture;
	const char *layers;			/* --layers LIST, NULL: all captured ones */
	int64_t sample_layers;			/* --sample-layers K, 0: all */
	bool tile;				/* requests may be longer than their capture */
	uint64_t seed;
};

struct prepared {
	uint16_t *capture_of;	/* [trace->n]; 0 for a request that is rejected anyway */
	int *captured_layer;	/* [model->n_layers] indices into the capture's layers */
	int *run_layer;		/* [n_run_layers] ascending */
	int n_run_layers;
};

/*
 * Requests with the same first prefix block, or without one the same number, rank the captures
 * in the same seeded order and take the first that is long enough.
 *
 * Model layer i of n uses LIST[floor(i * len / n)].  The K executed layers lie in the
 * middles of K equal parts of the model.
 *
 * AR_USAGE: a model whose layers differ; captures that differ in shape or layers, or do not fit the
 * model (their heads must be the model's, or the whole model's before the split); a list that
 * names a layer no capture has; more layers than there are; a request that is longer than every
 * capture.
 * AR_DATA: captures that differ in their rotary embedding.
 */
enum ar_status prepare_run(struct prepared *p, const struct prepare_in *in, struct ar_err *err);
/* Are the layers of m alike, and do the heads of c fit theirs, or the whole model's before the
 * split?  AR_USAGE. */
enum ar_status prepare_check_model(const struct capture_info *c, const struct model *m,
				   int whole_q_heads, int whole_kv_heads, struct ar_err *err);
void prepared_release(struct prepared *p);

#endif
