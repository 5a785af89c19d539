/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Droppers: at some full-attention layers they decide which rows of a chunk go on to the layers
 * after.  A row that is dropped takes part in nothing any more: its keys and values exist in the
 * layers before only.
 *
 * A dropper sees the rows of a batch's prefill at its layer, in the index space of that layer: row
 * and key i of a request is its i-th token that is still there.  Rows of decodes are never
 * dropped, and are not in the batch.  The last row of a request always stays, so that each request
 * has rows in every layer.
 *
 * A dropper may revive tokens: in a decode it chooses among the tokens dropped at its layer.
 * Revived tokens go on to the layers after, from the residual stream that they left the layer with.
 * For this the aux cache of the layer keeps the stream of each dropped token.
 */
#ifndef AR_DROPPER_H
#define AR_DROPPER_H

#include <stdbool.h>

#include "base/opt.h"
#include "base/status.h"
#include "kernels/attn.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

/* Where in its layer a dropper takes rows away: after attention, so that the MLP works on the rows
 * that stay; or after the MLP. */
enum drop_place { DROP_BEFORE_MLP, DROP_AFTER_LAYER };

/* Ranks that each have some of the heads, and must keep the same rows. */
struct drop_ranks {
	int n; /* 0 or 1: all heads are here */
	/* Gather `bytes` bytes of each rank into to[n][bytes], in order of ranks: on the host, or
	 * enqueued on the stream of a device. */
	enum ar_status (*gather)(void *ctx, const void *from, void *to, size_t bytes, void *stream,
				 struct ar_err *err);
	void *ctx;
};

/* One call at one layer.  Arrays are on the host for ref(), on the device for enqueue(). */
struct drop_call {
	const struct attn_call *at; /* b, layer, q, kv, work and stream; the cache holds the
				     * chunk's keys */
	const int32_t *chunk;	    /* [n_req] tokens of the chunk before anything was dropped */
	int n_step;		    /* rows of the iteration in this layer, also of decodes */
	struct drop_ranks ranks;    /* all make the call */
};

/* Rows that go on.  n_row, n_req: of the batch. */
struct drop_kept {
	uint8_t *keep;	 /* [n_row] 1: the row stays, 0: it is dropped */
	int32_t *n_keep; /* [n_req] rows that stay */
	int32_t *index;	 /* [n_row] their numbers, ascending; requests are in order */
};

/* Tokens that decodes revive.  In the batch of the call each request has one row, of a decode,
 * which sees all keys.  A key has the place page0[r] * page_tok + its index in the request. */
struct drop_revived {
	const uint8_t *gone; /* 1 at the place of a key: the token did not go on */
	int32_t *n;	     /* [n_req] tokens that are revived, at most revives() */
	int32_t *index;	     /* [n_req][revives()] their indices in the request, ascending */
};

typedef enum ar_status dropper_fn(const struct drop_call *call, const void *self, uint8_t *keep,
				  struct ar_err *err);
typedef enum ar_status dropper_revive_fn(const struct drop_call *call, const void *self,
					 const struct drop_revived *out, struct ar_err *err);

/* Rows that kernels and reference agree on.  text is for drop_parse(), with layer 0 and % for a
 * value.  With `value` both keep each row that the reference keeps with `strict`, and none that it
 * drops with `loose`; but for a share `slack` of the rows, where rounding changes an order. */
struct dropper_band {
	const char *text, *value, *strict, *loose;
	double slack;
};

struct dropper {
	const char *name;   /* "uniprefill" */
	const char *title;  /* one line */
	const char *origin; /* paper or code that it follows */
	const struct opt *params;
	size_t param_size;
	enum drop_place place;

	/* Check that the parameters, g->base, go together, else AR_USAGE; NULL: they always do. */
	enum ar_status (*check)(const struct opt_group *g, struct ar_err *err);

	/* Make *self, for all functions below.  AR_USAGE: the model has no such layers. */
	enum ar_status (*open)(void **self, const void *param, const struct model *m,
			       struct ar_err *err);
	void (*close)(void *self);

	/* Whether it drops rows at this layer of the model; only of full attention. */
	bool (*acts_after)(const void *self, int layer);

	/* Count the scores that ranks add up in a call; see drop_scores(). */
	int64_t (*scores)(const void *self, const struct attn_batch *b, int n_step);

	/* Whether all tokens of the prompt come back at each layer where it acts; NULL: dropped
	 * ones never do. */
	bool (*brings_back)(const void *self);
	/* Whether the windows of later layers count positions of the prompt; NULL: they never do,
	 * but count the tokens that are left. */
	bool (*counts_positions)(const void *self);

	/* The most tokens of a request that a decode revives at a layer; NULL: none. */
	int (*revives)(const void *self);
	/* The reference, and CUDA (NULL in a build without): write n and index.  NULL if revives
	 * is. */
	dropper_revive_fn *revive_ref, *revive_enqueue;

	/* The reference, and CUDA (NULL in a build without): write keep[n_row].  enqueue() only
	 * enqueues on the call's stream; its work has work_bytes() bytes of device memory. */
	dropper_fn *ref;
	const struct dropper_band *band; /* for the tests; ends with text == NULL */
	size_t (*work_bytes)(const void *self, int ranks, const struct attn_shape *s,
			     const struct attn_limits *l);
	dropper_fn *enqueue;
};

extern const struct dropper *const droppers[]; /* ends with NULL */
const struct dropper *dropper_find(const char *name);

/* A dropper with parameters, as "NAME:KEY=VALUE,...". */
struct drop {
	char *name; /* as the user wrote it */
	const struct dropper *dropper;
	void *param; /* the dropper's struct */
	void *self;  /* after drop_open() */
};

/* AR_USAGE: unknown name or parameter, a value out of range, or values that do not go together. */
enum ar_status drop_parse(struct drop **out, const char *text, struct ar_err *err);
/* Choose the layers of m.  Call it before any function below. */
enum ar_status drop_open(struct drop *d, const struct model *m, struct ar_err *err);
void drop_free(struct drop *d);
/* Its name and parameters, owned by the caller.  NULL: there is no memory. */
struct cJSON *drop_json(const struct drop *d);

/* Whether d, or NULL, drops rows at this layer. */
bool drop_acts_after(const struct drop *d, int layer);
/* Whether dropped tokens come back at each layer where d, or NULL, acts. */
bool drop_brings_back(const struct drop *d);
/* Whether with d, or NULL, the windows of later layers count positions of the prompt. */
bool drop_counts_positions(const struct drop *d);
/* The most tokens of a request that a decode revives at a layer of d, or NULL; 0: none. */
int drop_revives(const struct drop *d);

/* Scores that the ranks of a model add up in a call, by one message: each rank sends as many floats
 * to the others; 0: there is no message.  b and n_step are of the call. */
int64_t drop_scores(const struct drop *d, const struct attn_batch *b, int n_step);

/* The reference of one call, all on the host. */
enum ar_status drop_ref(const struct drop *d, const struct drop_call *call,
			const struct drop_kept *out, struct ar_err *err);
/* The same for decodes, of a dropper that revives tokens. */
enum ar_status drop_revive_ref(const struct drop *d, const struct drop_call *call,
			       const struct drop_revived *out, struct ar_err *err);

/* CUDA: the same two.  The call's work has drop_work_bytes() bytes; nothing synchronises or
 * allocates. */
size_t drop_work_bytes(const struct drop *d, int ranks, const struct attn_shape *s,
		       const struct attn_limits *l);
enum ar_status drop_enqueue(const struct drop *d, const struct drop_call *call,
			    const struct drop_kept *out, struct ar_err *err);
enum ar_status drop_revive_enqueue(const struct drop *d, const struct drop_call *call,
				   const struct drop_revived *out, struct ar_err *err);

/* Fill n_keep and index from keep: on the host, and on the device. */
void drop_index(const struct attn_rows *rows, const struct drop_kept *out);
size_t drop_index_work_bytes(int max_row);
enum ar_status drop_index_enqueue(const struct attn_rows *rows, const struct drop_kept *out,
				  void *work, void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
