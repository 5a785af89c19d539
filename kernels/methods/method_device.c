/* Methods on the device: the layout of their work memory and the order of launches. */
#include "config.h"
#include "kernels/methods/method.h"

#include <stdlib.h>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"

/* The arrays at the start of work.  Scratch of the selector, later of the executor, follows.  A
 * dense method has no such arrays. */
enum part { MASK, TABLE, BLOCK, BLOCK_N, TOKEN, TOKEN_N, RUN, RUN_N, COL, COL_N, BAND, N_PART };

struct layout {
	int heads, groups;
	size_t n_list;			/* rows of block lists */
	int max_run, max_col;
	size_t at[N_PART], bytes[N_PART];
	size_t end;
};

/* Sizes of a batch, or the most they can be. */
struct extent {
	size_t n_req, n_qblk, n_page;
	int max_kv_blk;
};

static void size_blocks(struct layout *l, const struct attn_shape *s, const struct extent *e)
{
	size_t words = ((size_t)e->max_kv_blk + 31) / 32;
	size_t n_mask = e->n_qblk * (size_t)s->q_heads;

	l->groups = union_groups(l->heads, s);
	l->n_list = l->heads ? e->n_req * (size_t)l->groups : n_mask;
	l->bytes[MASK] = n_mask * words * sizeof(uint32_t);
	l->bytes[TABLE] = l->heads ? l->n_list * words * sizeof(uint32_t) : 0;
	l->bytes[BLOCK] = l->n_list * (size_t)e->max_kv_blk * sizeof(uint16_t);
	l->bytes[BLOCK_N] = l->n_list * sizeof(int32_t);
}

static void size_tokens(struct layout *l, const struct attn_shape *s, const struct extent *e)
{
	size_t heads = (size_t)s->kv_heads * sizeof(int32_t);

	l->bytes[TOKEN] = e->n_page * (size_t)s->page_tok * heads;
	l->bytes[TOKEN_N] = e->n_req * heads;
}

static void size_columns(const struct method *m, struct layout *l, const struct attn_shape *s,
			 const struct extent *e)
{
	size_t n = e->n_qblk * (size_t)s->q_heads, row = n * sizeof(int32_t);
	struct column_lists most;

	method_columns(m, s, e->max_kv_blk, &most);
	l->max_run = most.max_run;
	l->max_col = most.max_col;
	l->bytes[RUN] = row * (size_t)most.max_run;
	l->bytes[COL] = row * (size_t)most.max_col;
	l->bytes[RUN_N] = l->bytes[COL_N] = row;
	l->bytes[BAND] = n * sizeof *most.band;
}

static struct layout layout(const struct method *m, const struct attn_shape *s,
			    const struct extent *e)
{
	struct layout l = { 0 };

	switch (method_shape(m)) {
	case TAKES_ALL: break;
	case TAKES_TOKENS: size_tokens(&l, s, e); break;
	case TAKES_COLUMNS: size_columns(m, &l, s, e); break;
	case TAKES_TABLE: l.heads = union_heads(m->u, s); /* fall through */
	default: size_blocks(&l, s, e);
	}
	for (int i = 0; i < N_PART; i++) {
		l.at[i] = l.end;
		l.end += workspace_aligned(l.bytes[i]);
	}
	return l;
}

static struct layout batch_layout(const struct method *m, const struct attn_batch *b)
{
	const struct extent e = { (size_t)b->n_req, (size_t)b->n_qblk, (size_t)b->n_page,
				  b->max_kv_blk };

	return layout(m, &b->shape, &e);
}

size_t method_work_bytes(const struct method *m, const struct attn_shape *s,
			 const struct attn_limits *l)
{
	const struct extent e = { (size_t)l->max_req, (size_t)attn_max_qblk(l, s->page_tok),
				  (size_t)l->max_page, l->max_kv_blk };
	struct layout x = layout(m, s, &e);
	size_t attend = m->executor->work_bytes(s, l, x.heads);
	size_t select = m->selector->work_bytes ? m->selector->work_bytes(m->self, s, l) : 0;

	return x.end + (select > attend ? select : attend);
}

static void *part(const struct layout *l, void *work, enum part i)
{
	return (char *)work + l->at[i];
}

static struct selection selection_at(const struct layout *l, void *work)
{
	return (struct selection){
		.mask = part(l, work, MASK),
		.tokens = { part(l, work, TOKEN), part(l, work, TOKEN_N) },
		.columns = { part(l, work, RUN), part(l, work, RUN_N), part(l, work, COL),
			     part(l, work, COL_N), l->max_run, l->max_col, part(l, work, BAND) },
	};
}

/* Union and lists of masks. */
static enum ar_status lower(const struct layout *l, const struct attn_batch *b, void *work,
			    struct executor_lists *lists, void *stream, struct ar_err *err)
{
	uint32_t *mask = part(l, work, MASK), *table = part(l, work, TABLE);
	enum ar_status st = AR_OK;

	lists->heads = l->heads;
	lists->blocks = (struct block_lists){ part(l, work, BLOCK), part(l, work, BLOCK_N),
					      b->max_kv_blk };
	if (l->heads)
		st = union_enqueue(b, l->heads, mask, table, stream, err);
	if (st)
		return st;
	return lists_enqueue(l->heads ? table : mask, (int)l->n_list, b->mask_words,
			     &lists->blocks, stream, err);
}

enum ar_status method_enqueue(const struct method *m, const struct attn_batch *b, const bf16_t *q,
			      const struct kv_cache *kv, void *state, bf16_t *out, float *lse,
			      void *work, void *stream, phase_fn *phase, void *phase_ctx,
			      int layer, struct ar_err *err)
{
	struct layout l = batch_layout(m, b);
	const struct selection chosen = selection_at(&l, work);
	struct executor_lists lists = { .tokens = chosen.tokens, .columns = chosen.columns };
	void *scratch = (char *)work + l.end;
	enum ar_status st = AR_OK;

	if (!m->dense) {
		phase(phase_ctx, layer, PHASE_SELECT);
		st = m->selector->enqueue(b, m->self, layer, q, kv, state, &chosen, scratch,
					  stream, err);
	}
	if (!st && method_shape(m) & (TAKES_MASK | TAKES_TABLE)) {
		phase(phase_ctx, layer, PHASE_METADATA);
		st = lower(&l, b, work, &lists, stream, err);
	}
	if (!st && m->executor->move) {
		phase(phase_ctx, layer, PHASE_COPY);
		st = m->executor->move(b, &lists, kv, scratch, stream, err);
	}
	if (st)
		return st;
	phase(phase_ctx, layer, PHASE_ATTEND);
	return m->executor->enqueue(b, &lists, q, kv, out, lse, scratch, stream, err);
}

/* Request 0 comes first in every part; l is its layout alone. */
static enum ar_status copy_parts(const struct layout *all, const struct layout *l,
				 const void *work, struct method_selection *x, struct ar_err *err)
{
	void *const to[N_PART] = {
		[MASK] = x->chosen.mask, [TABLE] = x->table,
		[BLOCK] = x->lists.blocks.block, [BLOCK_N] = x->lists.blocks.n,
		[TOKEN] = x->chosen.tokens.tok, [TOKEN_N] = x->chosen.tokens.n,
		[RUN] = x->chosen.columns.run, [RUN_N] = x->chosen.columns.n_run,
		[COL] = x->chosen.columns.col, [COL_N] = x->chosen.columns.n_col,
		[BAND] = x->chosen.columns.band,
	};
	enum ar_status st = AR_OK;

	for (int i = 0; i < N_PART; i++)
		CU(cudaMemcpy(to[i], (const char *)work + all->at[i], l->bytes[i],
			      cudaMemcpyDeviceToHost));
out:
	return st;
}

enum ar_status method_selection_device(const struct method *m, const struct attn_batch *host,
				       const void *work, struct method_selection *x,
				       struct ar_err *err)
{
	struct attn_batch one = *host;
	struct layout all = batch_layout(m, host), l;
	enum ar_status st;

	one.n_req = 1;
	one.n_row = host->row0[1];
	one.n_qblk = host->qblk0[1];
	one.n_page = host->page0[1];
	l = batch_layout(m, &one);
	st = method_selection_init(x, m, &one, err);
	return st ? st : copy_parts(&all, &l, work, x, err);
}

enum ar_status method_count_device(const struct method *m, const struct attn_batch *host,
				   const void *work, struct selection_count *count,
				   struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = method_selection_device(m, host, work, &x, err);

	if (!st)
		st = method_count(m, host, &x.chosen, x.table, count, err);
	method_selection_release(&x);
	return st;
}
