/* SPDX-License-Identifier: Apache-2.0 */
/* The state of backend "cpu", and the functions that its files share. */
#ifndef AR_BACKEND_CPU_H
#define AR_BACKEND_CPU_H

#include "kernels/phase.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/backends_attn.h"
#include "replay/engine/evictions.h"
#include "replay/ranks/world.h"

struct decoder_ref;

struct cpu {
	struct backend_env env;
	struct attn_engine engine;
	struct rows_env rows;
	struct row_set set;  /* of the batch that was built last */
	struct kv_cache *kv; /* [n_run_layers] */
	void **state;	     /* [n_run_layers] of the selector, or all NULL */
	bf16_t **aux; /* [n_run_layers] the aux cache of a layer, [slot][hidden]; NULL: it has
			      * none, or there are no weights */
	struct evictions evict;
	bf16_t **window; /* [requests] of the evictor: [n_run_layers][window][row of Q]; or NULL */
	void *lists;	 /* that pass between layers */
	int32_t *slot;	 /* [most revived rows] */
	bf16_t *q, *k, *out, *out_dense;
	float *lse, *lse_dense;

	struct decoder_ref *decoder; /* with weights; else NULL */
	float *logits;		     /* [CPU_LOGIT_ROWS][vocab] */

	/* Wall time of the iteration by phase; of PHASE_NONE, that of no part of it. */
	int64_t ns[PHASE_COUNT];
	enum phase phase; /* that runs */
	int64_t since;

	/* With weights: the entry that compare() ran last, and its last layer, whose attention
	 * output is in out.  layer -1: none. */
	struct cpu_sample {
		uint32_t req, start;
		int layer;
	} sample;
};

enum { CPU_LOGIT_ROWS = 16 };

/* Wall time. */
int64_t cpu_now_ns(void);
/* The time from now on is that of a phase.  A phase_fn for ctx, a struct cpu. */
void cpu_phase(void *ctx, int layer, enum phase phase);

/* Linear layers are not executed. */
static inline bool cpu_skips(const struct cpu *c, int i)
{
	return !mixer_attends(attn_engine_mixer(&c->engine, i));
}

/* Logits of a row: of this rank, or of all that run. */
static inline size_t cpu_vocab(const struct cpu *c)
{
	return (size_t)c->env.model->vocab * (c->env.world ? (size_t)world_size(c->env.world) : 1);
}

/* The attention call of rows of a kind in executed layer i: from c->q to c->out. */
struct attn_call cpu_call(const struct cpu *c, const struct rows *r, enum row_kind kind, int i);

/* ---- passes: backend_cpu_pass.c ---- */

/* Called by a pass for each executed layer i with attention, on its rows r. */
typedef enum ar_status cpu_mix_fn(struct cpu *c, int i, const struct rows *r, void *ctx,
				  struct ar_err *err);

/* Run b through all executed layers.  Rows are built segment by segment, as droppers take some
 * away.  whole: in a run with weights, the decoder's part of each layer runs, too; mix finds its
 * QKV product. */
enum ar_status cpu_pass(struct cpu *c, const struct batch *b, bool whole, cpu_mix_fn *mix,
			void *ctx, struct ar_err *err);

/* Make Q and K of the rows in executed layer i.  store: write K and V to the cache, too,
 * and show them to the selector of decodes. */
enum ar_status cpu_qkv(struct cpu *c, int i, const struct rows *r, bool store, struct ar_err *err);

/* Of mix: make Q, K and V, and run attention.  ctx: the batch, whose rows an evictor sees; or
 * NULL. */
cpu_mix_fn cpu_attend;

/* With weights, after a pass over b: give the logits of rows that output a token to env.tokens. */
enum ar_status cpu_emit(struct cpu *c, const struct batch *b, struct ar_err *err);

/* Build the rows of e, and make its Q and K in executed layer i.  e: an entry of the batch that ran
 * last. */
enum ar_status cpu_sample(struct cpu *c, const struct batch_entry *e, int i, struct ar_err *err);

/* ---- evictors: backend_cpu_evict.c ---- */

enum ar_status cpu_evict_open(struct cpu *c, struct ar_err *err);
void cpu_evict_close(struct cpu *c);
/* The request finished or was preempted. */
void cpu_evict_drop(struct cpu *c, uint32_t req);
/* The rows of b are made and stored in executed layer i: keep what the event reads. */
enum ar_status cpu_evict_see(struct cpu *c, int i, const struct rows *r, const struct batch *b,
			     struct ar_err *err);
/* Run the events that are listed, in phase EVICT. */
enum ar_status cpu_evict(struct cpu *c, struct ar_err *err);
/* The dense call of compare() for entry e, from whose request tokens have left: over all tokens. */
enum ar_status cpu_evict_dense(struct cpu *c, const struct batch_entry *e, int i,
			       struct attn_call *call, struct ar_err *err);

#endif
