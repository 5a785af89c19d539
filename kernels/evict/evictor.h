/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evictors: they take keys and values out of the KV cache for good.
 *
 * The event comes when a request has computed its prompt.  Some evictors act after each decode as
 * well.  How many tokens stay is a function of numbers, the same for all KV heads and layers.  So a
 * schedule needs no kernels.  Which ones stay is a matter of each KV head, unless `alike`.
 *
 * An evictor does not change positions: they count all tokens of a request.  It changes how many
 * tokens the cache stores.
 */
#ifndef AR_EVICTOR_H
#define AR_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

/* A request from which keys leave.  The first n_cand of its stored keys are candidates.  Those that
 * stay move to the front, in order, and the keys behind them follow. */
struct evict_req {
	int32_t n_key, n_cand, n_keep;
	int32_t page0; /* where its pages begin */
	/* The queries of its last n_row candidates are rows [row0, row0 + n_row) of q, if the
	 * evictor has a window. */
	int32_t row0, n_row;
	int32_t keep0; /* where its lists begin: one for each KV head, n_keep candidates each */
};

/* An event in one layer.  Arrays are on the host for ref().  For enqueue() they are on the device,
 * but for req, which has one request. */
struct evict_call {
	struct attn_shape shape;
	int n_req;
	const struct evict_req *req;
	const int32_t *page;
	const int32_t *to;   /* pages of what stays, from page0 on; NULL: the same ones */
	int layer;	     /* of the model */
	struct kv_cache kv;  /* kv-bf16 */
	void *state;	     /* of the evictor, beside the pages; NULL: it has none */
	const bf16_t *q;     /* [row][q_heads][head_dim] */
	int32_t *keep;	     /* the result: ascending in each list */
	void *work, *stream; /* CUDA: work_bytes() of memory, and where to enqueue */
};

/* For backend roofline: n_row rows of a request run, on stored keys.  Then n_gone of n_cand keys
 * leave; 0: there is no event. */
struct evict_rows {
	const struct attn_shape *shape;
	double stored, n_row, n_cand, n_gone;
};

/* Work of a phase: FLOPs of matrix products, bytes to or from memory, and kernels. */
struct evict_work {
	double flops, bytes;
	int kernels;
};

typedef enum ar_status evictor_fn(const void *param, const struct evict_call *call,
				  struct ar_err *err);
typedef enum ar_status evict_add_fn(const void *param, const struct attn_call *call,
				    struct ar_err *err);

struct evictor {
	const char *name; /* "snapkv"; evict_parts (method.h) has its title and origin */
	const struct opt *params;
	size_t param_size;
	bool decodes; /* it acts after each decode, too */
	bool alike;   /* the same tokens stay in all layers and KV heads */

	/* Set parameters, g->base, that were not given and depend on others.  AR_USAGE: they do not
	 * go together.  NULL: there is nothing to do. */
	enum ar_status (*settle)(struct opt_group *g, struct ar_err *err);
	/* How many of n_tok stored tokens stay; it never falls as n_tok rises.  With decodes: all,
	 * up to a number. */
	int64_t (*kept)(const void *param, int64_t n_tok);

	/* Add the work of an event in a layer, but for the compaction; and of the rows before it.
	 * NULL: none. */
	void (*work)(const void *param, const struct evict_rows *r, struct evict_work *w);

	/* The event reads the queries of this many rows at the end of a prompt.  NULL: of none.
	 * *whole: the rows may lie in earlier chunks, too. */
	int (*window)(const void *param, bool *whole);
	/* Bytes of state for a token of a KV head; it moves with its key.  NULL: none. */
	size_t (*state_bytes)(const void *param);
	/* Bring the state up to date with the rows of a call, before the event.  NULL without
	 * state. */
	evict_add_fn *add_ref;
	/* CUDA: the same in two steps, as rows may run twice.  add() may come again with the same
	 * rows, and needs add_bytes() of work; then commit() takes what it added, once. */
	size_t (*add_bytes)(const struct attn_shape *s, const struct attn_limits *l);
	evict_add_fn *add, *commit;
	/* The reference: write keep. */
	evictor_fn *ref;
	/* CUDA, NULL in a build without: the same of one request, with work_bytes() for up to n_key
	 * keys; NULL: none.  Nothing synchronises or allocates. */
	size_t (*work_bytes)(const void *param, const struct attn_shape *s, int n_key);
	evictor_fn *enqueue;
};

extern const struct evictor *const evictors[]; /* ends with NULL */
const struct evictor *evictor_find(const char *name);

/* An evictor with parameters, as "NAME[:KEY=VALUE,...]" or "NAME[,KEY=VALUE...]". */
struct evict {
	const struct evictor *evictor;
	void *param; /* the evictor's struct */
};

/* AR_USAGE: unknown parameter, a value out of range, or values that do not go together.  text
 * begins with the name of an evictor. */
enum ar_status evict_parse(struct evict **out, const char *text, struct ar_err *err);
void evict_free(struct evict *e); /* NULL is fine */
/* Its name and parameters, owned by the caller.  NULL: there is no memory. */
struct cJSON *evict_json(const struct evict *e);

static inline int64_t evict_kept(const struct evict *e, int64_t n_tok)
{
	return e->evictor->kept(e->param, n_tok);
}

/* The most tokens that a request stores once its prompt is computed; INT64_MAX: no bound. */
int64_t evict_bound(const struct evict *e);

/* Rows of a window, 0: none; see struct evictor. */
int evict_window(const struct evict *e, bool *whole);
/* Bytes of state beside a page of one layer, 0: none. */
size_t evict_state_bytes(const struct evict *e, const struct attn_shape *s);
/* The same of a token of a KV head. */
size_t evict_token_bytes(const struct evict *e);

/* Count the work of rows and of their event, compaction included. */
void evict_count(const struct evict *e, const struct evict_rows *r, struct evict_work *w);

/* The reference of the rows of a call, where there is state; and of an event: choose, and move
 * keys, values and state.  The requests' tables and numbers are the caller's. */
enum ar_status evict_add_ref(const struct evict *e, const struct attn_call *call,
			     struct ar_err *err);
enum ar_status evict_ref(const struct evict *e, const struct evict_call *call, struct ar_err *err);

/* CUDA: the same of one request. */
size_t evict_add_bytes(const struct evict *e, const struct attn_shape *s,
		       const struct attn_limits *l);
enum ar_status evict_add(const struct evict *e, const struct attn_call *call, struct ar_err *err);
enum ar_status evict_commit(const struct evict *e, const struct attn_call *call,
			    struct ar_err *err);
size_t evict_work_bytes(const struct evict *e, const struct attn_shape *s, int n_key);
enum ar_status evict_enqueue(const struct evict *e, const struct evict_call *call,
			     struct ar_err *err);
enum ar_status evict_compact_enqueue(const struct evict *e, const struct evict_call *call,
				     struct ar_err *err);
/* Choose by keys of pick.cuh, [kv_heads][stride]: of the first n candidates those with the largest
 * keys, of equal ones the first, and all behind them. */
enum ar_status evict_pick_enqueue(const struct evict_call *call, const uint32_t *key, int n,
				  int stride, struct ar_err *err);

/* Of the first n places of a list, the k with the largest scores, of equal ones the lowest:
 * ascending, to keep.  For references. */
enum ar_status evict_top(const float *score, int n, int k, int32_t *keep, struct ar_err *err);
/* The request as a batch, without rows.  For references. */
struct attn_batch evict_batch(const struct evict_call *call, const struct evict_req *r);

#ifdef __cplusplus
}
#endif
#endif
