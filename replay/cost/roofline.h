/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of an iteration by phase, counted from the model, the method and the batch.  Its time on
 * a GPU is by the roofline model (Williams, Waterman, Patterson, 2009).
 *
 * FLOPs are of matrix products: two for each multiply-add, on tensor cores.  Norms, RoPE and
 * softmax have none.  Bytes are of values that must move to or from memory, once, in bf16.  Weights
 * have the bytes of their format, scales included, KV caches those of their layout, and the rows of
 * an fp8 product 1 byte an element.  Quantizing rows is part of the rate of the format.
 *
 *   linear    products of QKV, output, router, gate and up, down, a shared expert and a gated
 *             DeltaNet's gates: operands, bias and product of each
 *   norm      two norms with residual, activation, norms of Q and K, output gate; with experts, the
 *             gather of their rows, and the sum with a shared one
 *   rope      Q and K of each row read and written, and its sines and cosines
 *   cache     K and V of each row read and written
 *   select    see roofline_select.h
 *   metadata  the masks read, and the lists of blocks written
 *   copy      selected K and V, read and written
 *   attend    2 FLOPs for each channel of a key and of a value, for each (query row, key) pair of
 *             each query head, times density;
 *             Q, output, and K and V of all keys times density
 *   decode    the same for the decodes, which are dense
 *   evict     2 FLOPs for each channel of a key, for each pair of an evictor's rows and keys; these
 *             keys read, and their scores; keys and values of what stays read and written
 *   mix       of a gated DeltaNet: per value head and row 6 k_dim v_dim FLOPs, and in a prompt
 *             4 * 64 (k_dim + v_dim) more, for chunks of 64 rows.  Of a state-space mixer: per row
 *             4 heads head_dim state, and in a prompt 2 chunk (groups state + heads head_dim)
 *             more.  Its products read, its output written, and the state of each request read
 *             and written
 *   head      of an iteration: the last norm, the product of the rows that emit, and its maximum
 *
 * A layer without a mixer or without an MLP has nothing of it, not even the norm.  A mixer beside
 * another shares its norm.
 *
 * A layer with a window or chunks has no selection, and pairs and keys within them only.
 *
 * A phase takes max(FLOPs / compute rate, bytes / memory rate) + fixed time in a layer.  Products
 * of experts, and of weights in another format than bf16, are parts that take theirs each.
 *
 * The kernels here spread the rows of a batch evenly over as many experts as they can.  In an
 * engine each row draws its k of E experts: n rows touch E (1 - (1 - k / E)^n) of them on average.
 * As rows prefer some experts, n^draws stands for n.  With experts, loads are drawn, see experts.h;
 * layers of a kind have the mean of theirs.
 *
 * Of experts that are spread over ranks the work is that of the rank with the most, of the rows of
 * all engines in the step.
 */
#ifndef AR_ROOFLINE_H
#define AR_ROOFLINE_H

#include "kernels/methods/method.h"
#include "model/model.h"
#include "replay/cost/experts.h"
#include "replay/cost/roofline_gpu.h"
#include "replay/sched/batch.h"

/* The form of latent attention in chunks of prompts without lists; see roofline_latent.h. */
enum roofline_latent { ROOFLINE_LATENT_AUTO, ROOFLINE_LATENT_ABSORB, ROOFLINE_LATENT_EXPAND };

/* The rank of a model and the method that run, parsed. */
struct roofline_subject {
	const struct model *model;
	const struct method *method;
	bool attention_only; /* no linear, norm, mix and head */
	enum roofline_latent latent;
	double draws; /* n rows touch as many experts as n^draws that draw them; 0: evenly */
	struct experts *experts; /* drawn for the rows of a step; NULL: evenly, or by draws */
};

/* Products with weights in a format: part i of the kind ROOFLINE_FORMATS + i. */
enum { ROOFLINE_PARTS = 2 * FORMATS };
struct roofline_part {
	double flops, bytes, edge_flops;
	int kernels;
	bool fp8; /* rows are quantized as well */
};

struct roofline_work {
	double flops, bytes;
	int kernels;		       /* launches, of parts as well; 0: the phase does not run */
	double edge_flops, edge_bytes; /* of each unit of a rate's edge */
	double fp8_flops;	       /* in addition */
	int kind;		       /* of rates, where the GPU has them; 0: that of the phase */
	uint32_t parts;		       /* bit i: part i has kernels; the others are not set */
	struct roofline_part part[ROOFLINE_PARTS]; /* in addition */
};

static inline bool roofline_has_part(const struct roofline_work *w, int i)
{
	return w->parts >> i & 1;
}

/* Count the work of batch b: of a layer of the model, and of the head in work[PHASE_HEAD].
 * density: [b->n] share of the (query row, key) pairs of each prefill entry that the method
 * computes; the entries of decodes are not read. */
void roofline_count(const struct roofline_subject *s, int layer, const struct batch *b,
		    const double *density, struct roofline_work work[PHASE_COUNT]);

/* The rate of a phase under a method, NULL: dense.  Of its selector in PHASE_SELECT, of the
 * executor of a sparse method in PHASE_ATTEND, else of the phase. */
const struct roofline_rate *roofline_rate_of(const struct roofline_gpu *g, const struct method *m,
					     enum phase p);

/* Time of work w, from 0 to INT64_MAX ns.  Without launches it is 0. */
int64_t roofline_ns(const struct roofline_gpu *g, const struct roofline_rate *r,
		    const struct roofline_work *w);

/* Time and launches of an iteration by phase, of n_layers layers with the same work; the cost of
 * all of it. */
struct roofline_time {
	int64_t phase_ns[PHASE_COUNT], cost_ns;
	int32_t kernels[PHASE_COUNT];
};
struct roofline_time roofline_time(const struct roofline_gpu *g, const struct method *m,
				   const struct roofline_work work[PHASE_COUNT], bool prefill,
				   int n_layers);

/* Count equal layers among layer[0..n), or among all of m if layer is NULL.  times[i]: how many are
 * like layer i of the model; 0 if an earlier layer of the model is like layer i. */
void roofline_kinds(const struct model *m, const int *layer, int n, int *times);

/* The same for layers of several kinds, by the times of roofline_kinds(), and the head. */
struct roofline_time roofline_iteration(const struct roofline_gpu *g,
					const struct roofline_subject *s, const int *times,
					const struct batch *b, const double *density);

#endif
