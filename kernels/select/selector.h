/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selectors choose the keys that a chunk attends to.  The folder kernels/select/NAME/ has NAME.c:
 * parameters, reference, descriptor.  A device file is beside it: NAME_device.cu or NAME_sm80.cu
 * (kernels/local.mk has the rule).  NAME_sm90.cu is there if Hopper has kernels of its own.
 * selectors.c and kernels/support.c have a row for each.
 *
 * A selector may also be a shared object of its own, a plug-in.  It defines selector_plugin and is
 * loaded by --selector FILE: see doc/plugin.md.  For it this header and the headers that it
 * includes are installed.  A plug-in may call the functions that they declare.
 *
 * Blocks are the pages of the batch: shape.page_tok tokens on the absolute grid.  A selector states
 * the tokens of a block (block_tok).  The run decides the page size, and refuses a selector whose
 * blocks have another size.
 */
#ifndef AR_SELECTOR_H
#define AR_SELECTOR_H

#include <stdbool.h>

#include "base/opt_table.h"
#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the structs in this header and in the headers that it includes.  A change of any
 * struct raises it. */
#define AR_SELECTOR_VERSION 5

/* The rank, model and device that a selector is opened for.  The rank has the first heads of the
 * model; other ranks have the others. */
struct selector_env {
	struct attn_shape shape;	   /* of this rank */
	const struct cache_layout *layout; /* of the KV cache; NULL: kv-bf16 */
	int n_layers;			   /* of the model */
	const float *rope_inv;		   /* [head_dim / 2] RoPE turned Q and K by inv * position;
					 * NULL: unknown */
	const char *rope_unknown; /* why, such as "rope type 'longrope'"; NULL: nothing states it */
	bool device;		  /* enqueue() will be called on the current device */
	int repeats;		  /* above 1: the heads are a file's, repeated that often */
	bool trial;		  /* it will be opened again, and prints warnings then */
};

/* The heads that a file must have for n heads of this rank.  Head h uses the file's head h modulo
 * that number. */
static inline int selector_file_heads(const struct selector_env *env, int n)
{
	return env->repeats > 1 ? n / env->repeats : n;
}

/* A chunk: the rows [start, start + n_tok) of a request, which see the keys before them. */
struct selector_chunk {
	int64_t start, n_tok;
};

/* The work of a selector for a chunk in one layer.  FLOPs are two for each multiply-add of a
 * product.  Bytes are read or written once; bytes of the selection itself do not count. */
struct selector_work {
	double flops, bytes;
	int launches;
	double keys; /* of a decode: keys of a list, the mean of all; 0: its most pieces */
};

/* The piece lists of a selector, for rows of at most len keys. */
struct piece_form {
	int tok, heads; /* as in struct piece_lists */
	int most;	/* pieces of a list */
	bool mask;	/* heads of a list see different pieces */
};

/* A method under which its kernels are compared with its reference, with value in place of
 * %.  Where rounding decides, both are right.  Cells may differ that the reference keeps under only
 * one of strict and loose; besides, a share slack of all cells.  strict and loose NULL: no others.
 * The methods may read agree.gate (of seer), agree.json (of minference), of 8 heads, and agree.duo
 * (of duo). */
struct selector_band {
	const char *method, *value, *strict, *loose;
	double slack;
};

enum { SELECTOR_VALUES = 4 };
/* A method whose reference keeps, with each value in place of %, all that it keeps with the values
 * before.  first, own: it always keeps the first block, the query block's own. */
struct selector_order {
	const char *method, *value[SELECTOR_VALUES];
	bool first, own;
};

typedef size_t selector_work_fn(const void *self, const struct attn_shape *s,
				const struct attn_limits *l);
typedef enum ar_status selector_fn(const struct attn_call *call, const void *self,
				   const struct selection *out, struct ar_err *err);
typedef enum ar_status selector_append_fn(const struct attn_call *call, const void *self,
					  struct ar_err *err);

struct selector {
	unsigned version;   /* AR_SELECTOR_VERSION */
	const char *name;   /* "flashprefill" */
	const char *title;  /* one line */
	const char *origin; /* paper or code it follows */
	const struct opt *params;
	size_t param_size;
	const char *threshold; /* name of the real parameter (alpha, gamma, mass ...) whose range
				 * goes from nearly all blocks kept to nearly none; state_bytes(),
				 * work_bytes() do not depend on it.  NULL: none */

	/* Check that the parameters go together, else AR_USAGE; NULL: they always do. */
	enum ar_status (*check)(const void *param, struct ar_err *err);

	unsigned gives; /* SHAPE_TOKENS, SHAPE_COLUMNS; SHAPE_PIECES: for decodes; 0: a mask */

	/* For SHAPE_COLUMNS: the most runs and columns of a list. */
	void (*columns)(const void *self, const struct attn_shape *s, int *max_run, int *max_col);

	/* For SHAPE_PIECES.  A pruner gives lists of some tokens of the lists in call->from, whose
	 * heads its own lists have; its form's heads and most do not count. */
	struct piece_form (*pieces)(const void *self, const struct attn_shape *s, int len);

	bool scores;			     /* ref() writes scores where there is room for them */
	bool prunes;			     /* SHAPE_PIECES: a pruner, see pieces */
	int (*block_tok)(const void *param); /* 64 or 128; NULL: 128 */

	/* The dense tail: how many query blocks at the end of a prompt keep every block.  Tables
	 * leave them out (attn_batch.tail).  NULL: none. */
	int (*tail)(const void *param);

	/* Make *self, for ref() and enqueue(), from the parameters and the files that they name
	 * (gates, thresholds, patterns).  NULL: self is the parameters. */
	enum ar_status (*open)(void **self, const void *param, const struct selector_env *env,
			       struct ar_err *err);
	void (*close)(void *self);

	/* Bytes that the selector keeps beside each page of the cache (all KV heads, one
	 * layer), NULL: none.  Their content must follow from the page's K alone: after a
	 * preemption it is rebuilt with the chunk.  Tokens that decodes wrote are shown to the
	 * selector as a chunk before a later chunk builds on them. */
	size_t (*state_bytes)(const void *self, const struct attn_shape *s);

	/* For SHAPE_PIECES, with state_bytes: bring the state up to date for the rows of the call,
	 * prefill or decode rows, whose keys the cache has.  Rows may come again.  Called in every
	 * layer and iteration before ref() or enqueue(); these only read the state.  append: as
	 * enqueue, without work. */
	selector_append_fn *append_ref, *append;

	/* work, ref and enqueue are NULL if everything is kept ("none", dense). */

	/* Count the work of a chunk, for backend roofline.  Most selectors call
	 * selector_products() or selector_places(), work.h. */
	struct selector_work (*work)(const void *param, const struct attn_shape *s,
				     const struct selector_chunk *c);

	/* The reference, for one layer of the model.  Reads the call's q and kv.  Brings its state
	 * [page][state_bytes] up to date for the blocks that the chunk touches.  Writes every word
	 * of the mask or every list.  May allocate. */
	selector_fn *ref;

	/* Rules that tests hold kernels and reference to; each ends with method == NULL. */
	const struct selector_band *band;
	const struct selector_order *order;

	/* CUDA; NULL in a build without.  Only enqueues on stream; no allocation, no
	 * synchronisation.  work has work_bytes() bytes of device memory; NULL: none. */
	selector_work_fn *work_bytes;
	selector_fn *enqueue;

	/* Of a plug-in with enqueue: the devices and sizes of its kernels. */
	struct selector_support {
		int cc_min, cc_max; /* compute capability, 90 for 9.0; cc_max 0: no limit */
		unsigned head_dims; /* 64 | 128: sizes are powers of two; 0: every size */
		unsigned page_toks; /* likewise, tokens of a page */
	} support;
};

/* The descriptor that a plug-in defines. */
extern const struct selector selector_plugin;

/* The choices of a parameter 'block', the tokens of a block; and the tokens of choice i. */
extern const char *const selector_blocks[]; /* ends with NULL */
static inline int selector_block_tok(int i)
{
	return 64 << i;
}

#ifdef __cplusplus
}
#endif
#endif
