/* Methods on the host: the named compositions, the reference and the counts. */
#include "config.h"
#include "kernels/methods/method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct method_name method_names[] = {
	{ "dense", "select=none/union=none/exec=paged",
	  "dense causal attention over the paged cache", "the baseline of every comparison" },
	{ "flashprefill", "select=flashprefill,alpha=0.01/union=none/exec=blocksparse",
	  "block-sparse attention, a list per query block and head", "FlashPrefill (2026)" },
	{ "compact-fp", "select=flashprefill,alpha=0.06/union=group/exec=paged",
	  "FlashPrefill's blocks, united per KV head and read as dense pages",
	  "CompactAttention (2026), CA-FP zero-copy" },
	{ "compact-fp-copy", "select=flashprefill,alpha=0.06/union=group/exec=copy",
	  "compact-fp with the selected blocks copied together first",
	  "CompactAttention (2026), CA-FP copy" },
	{ "union-bs", "select=flashprefill,alpha=0.06/union=group/exec=blocksparse",
	  "the tables of compact-fp run block-sparse, a query head at a time",
	  "CompactAttention (2026), ablation of the executor" },
	{ "flexprefill", "select=flexprefill/union=none/exec=blocksparse",
	  "columns and diagonals of blocks, or the heaviest blocks, as each head calls for",
	  "FlexPrefill (ICLR 2025)" },
	{ "minference", "select=minference/union=none/exec=columns",
	  "columns and diagonals of the last queries, or a fixed pattern, for each head",
	  "MInference 1.0 (NeurIPS 2024)" },
	{ "ashape", "select=ashape/union=none/exec=columns",
	  "the first and the last tokens before each row", "MInference (2024), A-shape" },
	{ "bfla", "select=bfla/union=none/exec=blocksparse",
	  "coarse blocks per KV head that the pooled queries point at", "BFLA (2026)" },
	{ "proxyattn", "select=proxyattn/union=none/exec=blocksparse",
	  "blocks by the scores of mean heads, a budget for each head (unverified)",
	  "ProxyAttn (2025)" },
	{ "seer", "select=seer,threshold=0.0003/union=none/exec=blocksparse",
	  "a learned gate's blocks, a list per query block and head", "SeerAttention (2024)" },
	{ "compact-sa", "select=seer,threshold=0.0005,dense-first=1/union=group/exec=paged",
	  "the gate's blocks, united per KV head and read as dense pages",
	  "CompactAttention (2026), CA-SA" },
	{ "quoka", "select=quoka/union=none/exec=gather",
	  "a quarter of the tokens before the chunk, per KV head, read as dense pages",
	  "QUOKA (2026), as in CompactAttention (2026)" },
	{ "trishape", "select=trishape/union=group/exec=paged",
	  "the first and the last blocks before the chunk", "OpenVINO GenAI, TRISHAPE" },
	{ "xattention", "select=xattention/union=none/exec=blocksparse",
	  "block-sparse attention where antidiagonals promise it", "XAttention (2025)" },
	{ "bfla@llama-3.1-8b",
	  "select=bfla,block=256,group=64,mass=0.99,local=256,stride=16,random=0.1/union=none/"
	  "exec=blocksparse",
	  "bfla as measured with Llama-3.1-8B, both rescues on", "BFLA (2026), Tables 3 and 5" },
	{ "compact-fp@llama-3.1-8b", "select=flashprefill,alpha=0.06/union=group/exec=paged",
	  "compact-fp as measured with Llama-3.1-8B", "CompactAttention (2026), CA-FP" },
	{ "compact-fp@qwen3-30b-a3b", "select=flashprefill,alpha=0.12/union=sub-group/exec=paged",
	  "compact-fp as measured with Qwen3-30B-A3B", "CompactAttention (2026), CA-FP" },
	{ "compact-sa@llama-3.1-8b",
	  "select=seer,threshold=0.0005,dense-first=1,dense-tail=1/union=group/exec=paged",
	  "compact-sa as measured with Llama-3.1-8B; add gate=FILE",
	  "CompactAttention (2026), CA-SA" },
	{ "flashprefill@llama-3.1-8b", "select=flashprefill,alpha=0.01/union=none/exec=blocksparse",
	  "flashprefill as measured with Llama-3.1-8B", "CompactAttention (2026), baseline" },
	{ "flashprefill@qwen3-30b-a3b",
	  "select=flashprefill,alpha=0.02/union=none/exec=blocksparse",
	  "flashprefill as measured with Qwen3-30B-A3B", "CompactAttention (2026), baseline" },
	{ "flexprefill@llama-3.1-8b",
	  "select=flexprefill,gamma=0.95,tau=0.1,min-budget=1024/union=none/exec=blocksparse",
	  "flexprefill as measured with Llama-3.1-8B", "FlexPrefill (ICLR 2025)" },
	{ "minference@llama-3.1-8b",
	  "select=minference,vertical=512,slash=2048/union=none/exec=columns",
	  "minference as released for Llama-3.1-8B, the same for all heads",
	  "MInference 1.0 (NeurIPS 2024), released configuration" },
	{ "quoka@llama-3.1-8b",
	  "select=quoka,query-ratio=0.25,kv-ratio=0.25/union=none/exec=gather",
	  "quoka as measured with Llama-3.1-8B", "CompactAttention (2026), baseline" },
	{ "quoka@qwen3-30b-a3b",
	  "select=quoka,query-ratio=0.25,kv-ratio=0.25/union=none/exec=gather",
	  "quoka as measured with Qwen3-30B-A3B", "CompactAttention (2026), baseline" },
	{ "seer@llama-3.1-8b", "select=seer,threshold=0.0003/union=none/exec=blocksparse",
	  "seer as measured with Llama-3.1-8B; add gate=FILE",
	  "CompactAttention (2026), baseline" },
	{ "xattention@llama-3.1-8b",
	  "select=xattention,stride=8,threshold=0.9,block=128/union=none/exec=blocksparse",
	  "xattention with one threshold; add table=FILE for those by head",
	  "XAttention (2025), as the baseline of MInference" },
	{ "xattention@qwen3-30b-a3b",
	  "select=xattention,stride=8,threshold=0.9,block=128/union=none/exec=blocksparse",
	  "xattention with one threshold; add table=FILE for those by head",
	  "CompactAttention (2026), baseline; threshold as for Llama" },
	{ 0 }
};

unsigned method_shape(const struct method *m)
{
	if (m->dense)
		return TAKES_ALL;
	if (m->selector->tokens)
		return TAKES_TOKENS;
	if (m->selector->columns)
		return TAKES_COLUMNS;
	return m->u == UNION_NONE ? TAKES_MASK : TAKES_TABLE;
}

int method_page_tok(const struct method *m)
{
	return m->selector->block_tok ? m->selector->block_tok(m->param) : 128;
}

int method_tail(const struct method *m)
{
	return method_shape(m) == TAKES_TABLE && m->selector->tail ? m->selector->tail(m->param) :
								     0;
}

enum ar_status method_open(struct method *m, const struct selector_env *env, struct ar_err *err)
{
	enum ar_status st;

	if (!m->selector->open)
		return AR_OK;
	st = m->selector->open(&m->self, m->param, env, err);
	if (st)
		ar_err_prefix(err, "method '%s'", m->name);
	return st;
}

size_t method_state_bytes(const struct method *m, const struct attn_shape *s)
{
	return m->selector->state_bytes ? m->selector->state_bytes(m->self, s) : 0;
}

static int table_heads(const struct method *m, const struct attn_shape *s)
{
	return method_shape(m) == TAKES_TABLE ? union_heads(m->u, s) : 0;
}

int method_plan(const struct method *m, const struct attn_batch *b, struct attn_tile *tile)
{
	return m->executor->plan(b, table_heads(m, &b->shape), tile);
}

void method_columns(const struct method *m, const struct attn_shape *s, int max_kv_blk,
		    struct column_lists *l)
{
	int most = max_kv_blk * s->page_tok;

	m->selector->columns(m->self, s, &l->max_run, &l->max_col);
	l->max_run = l->max_run < max_kv_blk + 1 ? l->max_run : max_kv_blk + 1;
	l->max_col = l->max_col < most ? l->max_col : most;
}

/* ---- counts ---- */

static bool kept(const uint32_t *row, int j)
{
	return !row || row[j / 32] >> j % 32 & 1;
}

static bool is_empty(const uint32_t *row, int words)
{
	int w = 0;

	while (w < words && !row[w])
		w++;
	return w == words;
}

/* What unions still have to count of a past block: it is kept under a head, a sub-group or a KV
 * head. */
enum { IN_HEAD = 1, IN_SUB = 2, IN_KV = 4, IN_ALL = 7 };

static int64_t take(uint8_t *mark, int past, uint8_t bit)
{
	int64_t n = 0;

	for (int j = 0; j < past; j++) {
		n += (mark[j] & bit) != 0;
		mark[j] &= (uint8_t)~bit;
	}
	return n;
}

/* The unions that end with query head k of a KV head. */
static void count_unions(const struct attn_shape *s, int k, uint8_t *mark, int past,
			 struct selection_count *c)
{
	int end = k + 1, group = s->q_heads / s->kv_heads;

	c->qunion_total += past;
	c->qunion_sel += take(mark, past, IN_HEAD);
	if (end == group || end % union_heads(UNION_SUBGROUP, s) == 0) {
		c->sub_total += past;
		c->sub_sel += take(mark, past, IN_SUB);
	}
	if (end == group) {
		c->kv_total += past;
		c->kv_sel += take(mark, past, IN_KV);
	}
}

/* Kept blocks before the chunk in a row; no row: all of them. */
static int64_t count_past(const uint32_t *row, int past)
{
	int64_t n = 0;

	for (int j = 0; j < past; j++)
		n += kept(row, j);
	return n;
}

/* (row, key) pairs of request 0's query block i, one head, and the kept ones among them. */
static void count_pairs(const struct attn_batch *b, int i, const uint32_t *row, int64_t *total,
			int64_t *sel)
{
	int64_t tok = b->shape.page_tok, ctx = b->ctx[0], end = ctx + b->row0[1];
	int64_t qa = ctx / tok + i, first = qa * tok;
	int64_t lo = (first > ctx ? first : ctx) - first;
	int64_t hi = (first + tok < end ? first + tok : end) - first;
	int64_t full = (hi - lo) * tok, own = (hi * (hi + 1) - lo * (lo + 1)) / 2;

	for (int j = 0; j < qa; j++)
		*sel += kept(row, j) ? full : 0;
	*sel += kept(row, (int)qa) ? own : 0;
	*total += qa * full + own;
}

/* Blocks before the chunk of request 0, 0 where the chunk is all tail. */
static int past_blocks(const struct attn_batch *b)
{
	return attn_body(b, 0) ? b->ctx[0] / b->shape.page_tok : 0;
}

/* One query head of request 0, all of its query blocks. */
static void count_head(const struct attn_batch *b, int head, int heads, const uint32_t *mask,
		       const uint32_t *table_row, uint8_t *mark, struct selection_count *c)
{
	int past = past_blocks(b), n = attn_body(b, 0);
	size_t words = (size_t)b->mask_words, pitch = (size_t)b->shape.q_heads * words;
	const uint32_t *row = mask ? mask + (size_t)head * words : NULL;

	for (int i = 0; i < b->qblk0[1]; i++) {
		const uint32_t *own = row ? row + (size_t)i * pitch : NULL;

		count_pairs(b, i, heads && i < n ? table_row : own, &c->exec_total, &c->exec_sel);
		c->blind += !heads && own && is_empty(own, b->mask_words);
		if (i >= n)
			continue;
		for (int j = 0; j < past; j++)
			if (kept(own, j)) {
				mark[j] = IN_ALL;
				c->tiles_sel++;
			}
		for (int j = 0; j <= i; j++)
			c->chunk_sel += kept(own, past + j);
		c->tiles_total += past;
		c->chunk_total += i + 1;
		c->chunk_full += b->qblk0[1];
	}
}

static void count_blocks(const struct method *m, const struct attn_batch *b, const uint32_t *mask,
			 const uint32_t *table, uint8_t *mark, struct selection_count *count)
{
	const struct attn_shape *s = &b->shape;
	int heads = table_heads(m, s), group = s->q_heads / s->kv_heads;
	int past = past_blocks(b);

	for (int kv = 0; kv < s->kv_heads; kv++) {
		struct selection_count *c = &count[kv];

		*c = (struct selection_count){ .chunk_open = attn_body(b, 0) ? b->qblk0[1] : 0 };
		for (int k = 0; k < group; k++) {
			if (heads && k && k % heads == 0)
				table += b->mask_words;
			if (heads && k % heads == 0) {
				c->group_total += past;
				c->group_sel += count_past(table, past);
			}
			count_head(b, kv * group + k, heads, mask, table, mark, c);
			count_unions(s, k, mark, past, c);
		}
		if (heads)
			table += b->mask_words;
		else
			c->group_total = c->tiles_total, c->group_sel = c->tiles_sel;
	}
}

/* One list for all heads and query blocks of a KV head. */
static void count_tokens(const struct attn_batch *b, const struct token_lists *l,
			 struct selection_count *count)
{
	int64_t ctx = b->ctx[0], rows = b->row0[1], n_qblk = b->qblk0[1];
	int64_t group = b->shape.q_heads / b->shape.kv_heads;
	int64_t sub = union_groups(union_heads(UNION_SUBGROUP, &b->shape), &b->shape) /
		      b->shape.kv_heads;

	for (int kv = 0; kv < b->shape.kv_heads; kv++)
		count[kv] = (struct selection_count){
			.tiles_total = group * n_qblk * ctx, .tiles_sel = group * n_qblk * l->n[kv],
			.qunion_total = group * ctx, .qunion_sel = group * l->n[kv],
			.sub_total = sub * ctx, .sub_sel = sub * l->n[kv],
			.kv_total = ctx, .kv_sel = l->n[kv],
			.group_total = ctx, .group_sel = l->n[kv],
			.exec_total = group * (rows * ctx + rows * (rows + 1) / 2),
			.exec_sel = group * (rows * l->n[kv] + rows * (rows + 1) / 2),
		};
}

/* The keys from first on, n of them, for the rows [lo, hi) of request 0: those before the chunk
 * are marked. */
static void count_run(const struct attn_batch *b, int first, int n, const struct attn_band *band,
		      int lo, int hi, uint8_t *mark, struct selection_count *c)
{
	int ctx = b->ctx[0], before = ctx - first < n ? ctx - first : n;
	int total = ctx + b->row0[1] + b->left[0];

	for (int i = 0; i < before; i++)
		mark[first + i] = IN_ALL;
	c->tiles_sel += before > 0 ? before : 0;
	for (int pos = ctx + lo; pos < ctx + hi; pos++) {
		int seen = pos - first + 1;

		seen = seen > n ? n : seen > 0 ? seen : 0;
		for (int i = 0; band && i < seen; i++)
			c->exec_sel -= attn_band_hides(band, total, pos, first + i);
		c->exec_sel += seen;
	}
}

/* One query head of request 0. */
static void count_head_columns(const struct attn_batch *b, int head, const struct column_lists *l,
			       uint8_t *mark, struct selection_count *c)
{
	int ctx = b->ctx[0], rows = b->row0[1], tok = b->shape.page_tok;

	for (int i = 0; i < b->qblk0[1]; i++) {
		size_t row = (size_t)i * (size_t)b->shape.q_heads + (size_t)head;
		const int32_t *run = l->run + row * (size_t)l->max_run;
		const int32_t *col = l->col + row * (size_t)l->max_col;
		int lo = (ctx / tok + i) * tok - ctx, hi = lo + tok < rows ? lo + tok : rows;

		lo = lo > 0 ? lo : 0;
		for (int k = 0; k < l->n_run[row]; k++)
			count_run(b, run[k], tok, &l->band[row], lo, hi, mark, c);
		for (int k = 0; k < l->n_col[row]; k++)
			count_run(b, col[k], 1, NULL, lo, hi, mark, c);
		c->blind += !l->n_run[row] && !l->n_col[row];
	}
}

static void count_columns(const struct attn_batch *b, const struct column_lists *l, uint8_t *mark,
			  struct selection_count *count)
{
	int64_t ctx = b->ctx[0], rows = b->row0[1];
	int group = b->shape.q_heads / b->shape.kv_heads;

	for (int kv = 0; kv < b->shape.kv_heads; kv++) {
		struct selection_count *c = &count[kv];

		*c = (struct selection_count){
			.tiles_total = group * b->qblk0[1] * ctx,
			.exec_total = group * (rows * ctx + rows * (rows + 1) / 2),
		};
		for (int k = 0; k < group; k++) {
			count_head_columns(b, kv * group + k, l, mark, c);
			count_unions(&b->shape, k, mark, (int)ctx, c);
		}
		c->group_total = c->tiles_total, c->group_sel = c->tiles_sel;
	}
}

enum ar_status method_count(const struct method *m, const struct attn_batch *b,
			    const struct selection *chosen, const uint32_t *table,
			    struct selection_count *count, struct ar_err *err)
{
	uint8_t *mark = calloc((size_t)b->ctx[0] + 1, sizeof *mark);

	if (!mark)
		return ar_nomem(err);
	switch (method_shape(m)) {
	case TAKES_TOKENS: count_tokens(b, &chosen->tokens, count); break;
	case TAKES_COLUMNS: count_columns(b, &chosen->columns, mark, count); break;
	default: count_blocks(m, b, chosen ? chosen->mask : NULL, table, mark, count);
	}
	free(mark);
	return AR_OK;
}

/* ---- reference ---- */

void method_selection_release(struct method_selection *x)
{
	free(x->chosen.mask);
	free(x->chosen.tokens.tok);
	free(x->chosen.tokens.n);
	free(x->chosen.columns.run);
	free(x->chosen.columns.n_run);
	free(x->chosen.columns.col);
	free(x->chosen.columns.n_col);
	free(x->chosen.columns.band);
	free(x->chosen.score);
	free(x->table);
	free(x->lists.blocks.block);
	free(x->lists.blocks.n);
	*x = (struct method_selection){ .scored = x->scored };
}

/* At least one element, so that an empty batch is no failure. */
static void *array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

/* Elements of a batch's token lists. */
static size_t all_tokens(const struct attn_batch *b)
{
	return (size_t)b->n_page * (size_t)b->shape.page_tok * (size_t)b->shape.kv_heads;
}

static bool alloc_tokens(const struct attn_batch *b, struct token_lists *l)
{
	size_t heads = (size_t)b->shape.kv_heads;

	l->tok = array(all_tokens(b), sizeof *l->tok);
	l->n = array((size_t)b->n_req * heads, sizeof *l->n);
	return l->tok && l->n;
}

static bool alloc_columns(const struct method *m, const struct attn_batch *b,
			  struct column_lists *l)
{
	size_t n = (size_t)b->n_qblk * (size_t)b->shape.q_heads;

	method_columns(m, &b->shape, b->max_kv_blk, l);
	l->run = array(n * (size_t)l->max_run, sizeof *l->run);
	l->n_run = array(n, sizeof *l->n_run);
	l->col = array(n * (size_t)l->max_col, sizeof *l->col);
	l->n_col = array(n, sizeof *l->n_col);
	l->band = array(n, sizeof *l->band);
	return l->run && l->n_run && l->col && l->n_col && l->band;
}

static bool alloc_blocks(const struct method *m, const struct attn_batch *b,
			 struct method_selection *x)
{
	const struct attn_shape *s = &b->shape;
	size_t n_mask = (size_t)b->n_qblk * (size_t)s->q_heads, n_list = n_mask;
	struct block_lists *l = &x->lists.blocks;

	x->lists.heads = table_heads(m, s);
	if (x->lists.heads)
		n_list = (size_t)b->n_req * (size_t)union_groups(x->lists.heads, s);
	x->chosen.mask = array(n_mask * (size_t)b->mask_words, sizeof *x->chosen.mask);
	x->table = array(x->lists.heads ? n_list * (size_t)b->mask_words : 1, sizeof *x->table);
	l->block = array(n_list * (size_t)b->max_kv_blk, sizeof *l->block);
	l->n = array(n_list, sizeof *l->n);
	l->stride = b->max_kv_blk;
	return x->chosen.mask && x->table && l->block && l->n;
}

static bool alloc_scores(const struct method *m, const struct attn_batch *b, float **score)
{
	size_t n = m->selector->tokens ? all_tokens(b) :
		   (size_t)b->n_qblk * (size_t)b->shape.q_heads * (size_t)b->max_kv_blk;

	*score = array(n, sizeof **score);
	for (size_t i = 0; *score && i < n; i++)
		(*score)[i] = NAN;
	return *score;
}

static bool alloc_selection(struct method_selection *x, const struct method *m,
			    const struct attn_batch *b)
{
	if (x->scored && m->selector->scores && !alloc_scores(m, b, &x->chosen.score))
		return false;
	switch (method_shape(m)) {
	case TAKES_ALL: return true;
	case TAKES_TOKENS: return alloc_tokens(b, &x->chosen.tokens);
	case TAKES_COLUMNS: return alloc_columns(m, b, &x->chosen.columns);
	default: return alloc_blocks(m, b, x);
	}
}

enum ar_status method_selection_init(struct method_selection *x, const struct method *m,
				     const struct attn_batch *b, struct ar_err *err)
{
	*x = (struct method_selection){ .scored = x->scored };
	if (!alloc_selection(x, m, b))
		return ar_nomem(err);
	x->lists.tokens = x->chosen.tokens;
	x->lists.columns = x->chosen.columns;
	return AR_OK;
}

enum ar_status method_choose_ref(const struct method *m, const struct attn_batch *b, int layer,
				 const bf16_t *q, const struct kv_cache *kv, void *state,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = method_selection_init(x, m, b, err);

	if (st || m->dense)
		return st;
	return m->selector->ref(b, m->self, layer, q, kv, state, &x->chosen, err);
}

void method_lower_ref(const struct attn_batch *b, struct method_selection *x)
{
	int heads = x->lists.heads;

	if (heads)
		union_ref(b, heads, x->chosen.mask, x->table);
	lists_ref(heads ? x->table : x->chosen.mask,
		  heads ? b->n_req * union_groups(heads, &b->shape) : b->n_qblk * b->shape.q_heads,
		  b->mask_words, &x->lists.blocks);
}

enum ar_status method_select_ref(const struct method *m, const struct attn_batch *b, int layer,
				 const bf16_t *q, const struct kv_cache *kv, void *state,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = method_choose_ref(m, b, layer, q, kv, state, x, err);

	if (!st && x->chosen.mask)
		method_lower_ref(b, x);
	return st;
}

enum ar_status method_ref(const struct method *m, const struct attn_batch *b, int layer,
			  const bf16_t *q, const struct kv_cache *kv, void *state, bf16_t *out,
			  float *lse, struct selection_count *count, struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = method_select_ref(m, b, layer, q, kv, state, &x, err);

	if (!st)
		st = m->executor->ref(b, &x.lists, q, kv, out, lse, err);
	if (!st && count)
		st = method_count(m, b, &x.chosen, x.table, count, err);
	method_selection_release(&x);
	return st;
}
