/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MInference's selection, for chunks: each head has a pattern of its own, found offline.
 *
 * vertical_and_slash   The columns and the distances with the largest sums, a number of each, by
 *                      column[c] and slash[d] of lastq.h from the last rows of the chunk.  The
 *                      first 'sink' columns and 'local' distances are always among them.  For the
 *                      query block that ends before position e, a run of 64 keys ends at e - d for
 *                      every distance d.  Runs that would overlap are put end to end
 *                      (minference_merge); columns that are in no run stay single keys.
 * stream_llm           An A-shape, row by row: the first n_init keys, and keys less than n_local
 *                      away, at least the row's own.
 * block_sparse         The blocks up to the diagonal with the largest products of two means: of the
 *                      query block's rows, and of each block of keys.  A last block is filled up
 *                      with zeros.  The published code does not force the diagonal.
 *
 * 'ratio' scales the numbers of columns and distances.  There are at least 'sink' columns, and at
 * least 50 distances or 'local', whichever is less.  Of equal values the lower column, distance or
 * block wins.  A chunk of one row sees everything.  Columns are positions in the prompt, and
 * distances count from rows: where the prompt is cut changes only which rows are the last.
 *
 * The file is the one that MInference publishes: an array with an object for each layer, from the
 * number of a head to [pattern, size, size, score].  A head that it lacks has 1000 columns and 6096
 * distances.
 */
#include "config.h"
#include "kernels/select/minference/minference.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/order.h"
#include "base/text.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.h"
#include "kernels/select/work.h"

enum { TOK = 64 };
enum { FILE_MAX = 64 << 20 }; /* bytes; published ones have some hundred thousand */
enum { SIZE_MAX_TOK = 1 << 30 };
enum { LEAST_SLASH = 50 };
enum { NO_VERTICAL = 1000, NO_SLASH = 6096 }; /* of heads that a file lacks */

const char *const minference_patterns[] = { "vertical_and_slash", "stream_llm", "block_sparse",
					    NULL };

static int minference_block_tok(const void *param)
{
	(void)param;
	return TOK;
}

/* ---- patterns ---- */

static int at_least(int64_t size, int64_t least)
{
	return (int)(size > least ? size : least);
}

static struct minference_head slash_head(const struct minference *p, int64_t vertical,
					 int64_t slash)
{
	int64_t least = p->local < LEAST_SLASH ? p->local : LEAST_SLASH;

	vertical = (int64_t)((double)vertical * p->ratio);
	slash = (int64_t)((double)slash * p->ratio);
	return (struct minference_head){ PATTERN_SLASH, at_least(vertical, p->sink),
					 at_least(slash, least > 1 ? least : 1) };
}

/* v: NULL, or [pattern, size, size, ...]. */
static bool read_head(const struct minference *p, const cJSON *v, struct minference_head *out)
{
	const cJSON *name = cJSON_GetArrayItem(v, 0);
	double size[2];

	for (int i = 0; i < 2; i++) {
		const cJSON *x = cJSON_GetArrayItem(v, i + 1);

		size[i] = cJSON_IsNumber(x) ? x->valuedouble : -1;
		if (!(size[i] >= 0 && size[i] <= SIZE_MAX_TOK) || size[i] != floor(size[i]))
			return false;
	}
	for (int i = 0; cJSON_IsString(name) && minference_patterns[i]; i++) {
		if (strcmp(name->valuestring, minference_patterns[i]))
			continue;
		*out = (struct minference_head){ i, (int)size[0], (int)size[1] };
		if (i == PATTERN_SLASH)
			*out = slash_head(p, out->vertical, out->slash);
		if (i == PATTERN_SHAPE)
			out->slash = at_least(out->slash, 1);
		return true;
	}
	return false;
}

/* n_heads: of the file. */
static enum ar_status read_layer(struct minference_self *x, int layer, int n_heads,
				 const cJSON *object, struct ar_err *err)
{
	if (!cJSON_IsObject(object))
		return ar_fail(err, AR_DATA,
			       "%s: layer %d: want an object with an entry for each "
			       "head",
			       x->rule.path, layer);
	for (int h = 0; h < x->q_heads; h++) {
		char key[16];
		const cJSON *v;

		snprintf(key, sizeof key, "%d", h % n_heads);
		v = cJSON_GetObjectItemCaseSensitive(object, key);
		if (v && !read_head(&x->rule, v, &x->head[layer * x->q_heads + h]))
			return ar_fail(err, AR_DATA,
				       "%s: layer %d, head %d: want [PATTERN, N, N, "
				       "...] with one of %s, %s, %s",
				       x->rule.path, layer, h, minference_patterns[0],
				       minference_patterns[1], minference_patterns[2]);
	}
	return AR_OK;
}

static enum ar_status read_file(struct minference_self *x, int n_heads, struct ar_err *err)
{
	const cJSON *layer;
	cJSON *json;
	char *text;
	int n = 0;
	enum ar_status st = text_read(&text, x->rule.path, FILE_MAX, err);

	if (st)
		return st;
	st = json_parse_file(&json, text, x->rule.path, err);
	if (!st && (!cJSON_IsArray(json) || cJSON_GetArraySize(json) != x->n_layers))
		st = ar_fail(err, AR_DATA,
			     "%s: want an array with an object for each of %d layers; "
			     "'calibrate minference --layers %d' writes one",
			     x->rule.path, x->n_layers, x->n_layers);
	for (layer = st ? NULL : json->child; layer && !st; layer = layer->next)
		st = read_layer(x, n++, n_heads, layer, err);
	cJSON_Delete(json);
	free(text);
	return st;
}

/* ---- open ---- */

static int larger(int a, int b)
{
	return a > b ? a : b;
}

/* Set the most columns and distances of any head. */
static void set_most(struct minference_self *x)
{
	for (int i = 0; i < x->n_layers * x->q_heads; i++) {
		const struct minference_head *h = &x->head[i];

		if (h->pattern == PATTERN_SLASH) {
			x->max_vertical = larger(x->max_vertical, h->vertical);
			x->max_slash = larger(x->max_slash, h->slash);
		}
		x->any_block |= h->pattern == PATTERN_BLOCK;
	}
}

static enum ar_status minference_open(void **self, const void *param,
				      const struct selector_env *env, struct ar_err *err)
{
	const struct minference *p = param;
	size_t n = (size_t)env->n_layers * (size_t)env->shape.q_heads;
	struct minference_self *x;
	enum ar_status st = AR_OK;

	*self = NULL;
	if (env->device && env->shape.q_heads > MINFERENCE_HEADS)
		return ar_fail(err, AR_USAGE,
			       "minference on CUDA takes up to %d query heads, "
			       "not %d",
			       MINFERENCE_HEADS, env->shape.q_heads);
	x = calloc(1, sizeof *x + n * sizeof *x->head);
	if (!x)
		return ar_nomem(err);
	x->rule = *p;
	x->n_layers = env->n_layers;
	x->q_heads = env->shape.q_heads;
	for (size_t i = 0; i < n; i++)
		x->head[i] = p->path ? slash_head(p, NO_VERTICAL, NO_SLASH) :
				       slash_head(p, p->vertical, p->slash);
	if (p->path)
		st = read_file(x, selector_file_heads(env, x->q_heads), err);
	set_most(x);
	if (st)
		free(x);
	else
		*self = x;
	return st;
}

static void minference_columns(const void *self, const struct attn_shape *s, int *max_run,
			       int *max_col)
{
	const struct minference_self *x = self;

	(void)s;
	*max_run = INT_MAX; /* a chunk of one row has all blocks */
	*max_col = x->max_vertical;
}

/* ---- reference ---- */

/* The places of the n largest cells, ascending. */
static void pick_places(struct top_cell *cell, int n_cell, int n, int32_t *out)
{
	top_sort(cell, n_cell);
	for (int i = 0; i < n; i++)
		out[i] = (int32_t)cell[i].at;
	qsort(out, (size_t)n, sizeof *out, order_i32);
}

int minference_pick(const float *mass, int end, int forced, int n, struct top_cell *cell,
		    int32_t *out)
{
	for (int i = 0; i < end; i++)
		cell[i] = (struct top_cell){ i < forced ? UINT32_MAX : minference_key(mass[i]), i };
	n = n < end ? n : end;
	pick_places(cell, end, n, out);
	return n;
}

static struct minference_row row_at(const struct attn_batch *b, const struct column_lists *l, int r,
				    int i, int h, size_t *row)
{
	*row = (size_t)(b->rows.qblk0[r] + i) * (size_t)b->shape.q_heads + (size_t)h;
	return (struct minference_row){ l->run + *row * (size_t)l->max_run,
					l->col + *row * (size_t)l->max_col, 0, 0 };
}

static int n_qblk(const struct attn_batch *b, int r)
{
	return b->rows.qblk0[r + 1] - b->rows.qblk0[r];
}

enum ar_status minference_lists(const struct attn_batch *b, const struct minference_self *x,
				const struct minference_head *head, int r, int h,
				const float *column, const float *slash,
				const struct column_lists *out, struct ar_err *err)
{
	int tok = b->shape.page_tok, rows = attn_n_row(&b->rows, r), end = b->keys.len[r];
	struct top_cell *cell = malloc((size_t)end * sizeof *cell);
	int32_t *v = malloc(2 * (size_t)end * sizeof *v);
	bool shape = rows == 1 || head->pattern == PATTERN_SHAPE;
	struct attn_band band = minference_band(head, rows);
	int n_v = 0, n_s = 0;
	enum ar_status st = cell && v ? AR_OK : ar_nomem(err);

	if (!st && !shape) {
		n_v = minference_pick(column, end, (int)x->rule.sink, head->vertical, cell, v);
		n_s = minference_pick(slash, end, (int)x->rule.local, head->slash, cell, v + end);
	}
	for (int i = 0; i < n_qblk(b, r) && !st; i++) {
		int qa = b->rows.pos0[r] / tok + i;
		size_t row;
		struct minference_row to = row_at(b, out, r, i, h, &row);

		if (shape)
			to.n_run = ashape_runs(&band, b, r, qa, to.run);
		else
			minference_merge(tok, v, n_v, v + end, n_s, (qa + 1) * tok, &to);
		out->n_run[row] = to.n_run;
		out->n_col[row] = to.n_col;
		out->band[row] = band;
	}
	free(cell);
	free(v);
	return st;
}

void minference_best(const struct attn_batch *b, const struct minference *p, int r, int i, int h,
		     const bf16_t *q, const float *mean_of_keys, float *mean, struct top_cell *cell,
		     struct minference_row *out)
{
	const struct attn_shape *s = &b->shape;
	int tok = s->page_tok, ctx = b->rows.pos0[r], rows = attn_n_row(&b->rows, r);
	int qa = ctx / tok + i, lo = qa * tok - ctx, hi = lo + tok < rows ? lo + tok : rows;
	int n = qa + 1 < p->blocks ? qa + 1 : (int)p->blocks;

	means_of_rows(b, b->rows.row0[r] + (lo > 0 ? lo : 0), b->rows.row0[r] + hi, h, q, mean);
	for (int j = 0; j <= qa; j++) {
		float product = means_dot(
			mean, means_at(b, r, j, h / (s->q_heads / s->kv_heads), mean_of_keys),
			s->head_dim);

		cell[j] = (struct top_cell){
			minference_key(product * minference_fill(tok, ctx + rows, j)), j
		};
	}
	if (p->force_diag)
		cell[qa].key = UINT32_MAX;
	pick_places(cell, qa + 1, n, out->run);
	for (int k = 0; k < n; k++)
		out->run[k] *= tok;
	out->n_run = n;
	out->n_col = 0;
}

static enum ar_status blocks_ref(const struct attn_batch *b, const struct minference_self *x, int r,
				 int h, const bf16_t *q, const float *state,
				 const struct column_lists *out, struct ar_err *err)
{
	struct top_cell *cell = malloc((size_t)b->keys.max_kv_blk * sizeof *cell);
	float *mean = malloc((size_t)b->shape.head_dim * sizeof *mean);
	enum ar_status st = cell && mean ? AR_OK : ar_nomem(err);

	for (int i = 0; i < n_qblk(b, r) && !st; i++) {
		size_t row;
		struct minference_row to = row_at(b, out, r, i, h, &row);

		minference_best(b, &x->rule, r, i, h, q, state, mean, cell, &to);
		out->n_run[row] = to.n_run;
		out->n_col[row] = to.n_col;
		out->band[row] = (struct attn_band){ 0 };
	}
	free(cell);
	free(mean);
	return st;
}

static enum ar_status minference_ref(const struct attn_call *call, const void *self,
				     const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct minference_self *m = self;
	const struct minference_head *head = m->head + (size_t)call->layer * (size_t)m->q_heads;
	size_t n = (size_t)b->keys.max_kv_blk * (size_t)b->shape.page_tok;
	float *x = malloc(2 * n * sizeof *x);
	enum ar_status st = x ? AR_OK : ar_nomem(err);

	if (!st && m->any_block)
		means_update(b, call->kv.k, call->state);
	for (int i = 0; i < b->rows.n_req * m->q_heads && !st; i++) {
		int r = i / m->q_heads, h = i % m->q_heads, rows = attn_n_row(&b->rows, r);

		if (rows > 1 && head[h].pattern == PATTERN_BLOCK) {
			st = blocks_ref(b, m, r, h, call->q, call->state, &out->columns, err);
			continue;
		}
		if (rows > 1 && head[h].pattern == PATTERN_SLASH)
			st = lastq_ref(b, r, h, (int)m->rule.last, call->q, call->kv.k, x, x + n,
				       err);
		if (!st && rows)
			st = minference_lists(b, m, &head[h], r, h, x, x + n, &out->columns, err);
	}
	free(x);
	return st;
}

/* ---- descriptor ---- */

static size_t minference_state_bytes(const void *self, const struct attn_shape *s)
{
	return ((const struct minference_self *)self)->any_block ? means_state_bytes(s) : 0;
}

#define OFF(member) offsetof(struct minference, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "pattern", .type = OPT_STR, .off = OFF(path), .arg = "FILE",
	  .help = "file of each head's pattern; without it all vertical_and_slash" },
	{ .name = "vertical", .type = OPT_INT, .off = OFF(vertical), .arg = "N", .def = "512",
	  .max = SIZE_MAX_TOK, .help = "without a pattern file: columns of each head" },
	{ .name = "slash", .type = OPT_INT, .off = OFF(slash), .arg = "N", .def = "2048",
	  .max = SIZE_MAX_TOK,
	  .help = "without a pattern file: distances (diagonals) of each head" },
	{ .name = "ratio", .type = OPT_REAL, .off = OFF(ratio), .arg = "X", .def = "1", .max = 1,
	  .help = "multiply the numbers of columns and distances by X" },
	{ .name = "last", .type = OPT_INT, .off = OFF(last), .arg = "N", .def = "64", .min = 1,
	  .max = LASTQ_MAX,
	  .help = "choose columns and distances by the last N queries of a chunk" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "30",
	  .max = SIZE_MAX_TOK, .help = "always choose the first N columns" },
	{ .name = "local", .type = OPT_INT, .off = OFF(local), .arg = "N", .def = "100", .min = 1,
	  .max = SIZE_MAX_TOK, .help = "always choose the first N distances" },
	{ .name = "blocks", .type = OPT_INT, .off = OFF(blocks), .arg = "N", .def = "100", .min = 1,
	  .max = 65536, .help = "pattern block_sparse: keep N blocks" },
	{ .name = "force-diag", .type = OPT_FLAG, .off = OFF(force_diag), .def = "1",
	  .help = "pattern block_sparse: always keep the query block's own block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "minference:vertical=60,slash=150", NULL, NULL, NULL, 0.02 },
	{ "minference:pattern=agree.json,blocks=3", NULL, NULL, NULL, 0.02 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "minference:slash=130,vertical=%", { "0", "50", "100", "300" }, true, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work minference_work(const void *param, const struct attn_shape *s,
					    const struct selector_chunk *c)
{
	(void)param;
	return selector_products(&(struct selector_form){ .launches = 5, .passes = 2, .last = 64 },
				 s, c);
}

extern const struct selector selector_minference;
const struct selector selector_minference = {
	.version = AR_SELECTOR_VERSION,
	.name = "minference",
	.title = "vertical-slash lists or a fixed pattern, found offline for each head",
	.origin = "MInference 1.0 (NeurIPS 2024), for chunks instead of whole prompts",
	.params = params,
	.param_size = sizeof(struct minference),
	.gives = SHAPE_COLUMNS,
	.columns = minference_columns,
	.block_tok = minference_block_tok,
	.open = minference_open,
	.close = free,
	.state_bytes = minference_state_bytes,
	.work = minference_work,
	.ref = minference_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? minference_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? minference_enqueue : NULL,
};
