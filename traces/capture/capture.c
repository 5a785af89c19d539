/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/capture/capture.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "base/safetensors.h"
#include "model/rope.h"
#include "traces/capture/arc.h"
#include "traces/capture/random.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as files have them");

enum { FRAME_TOK = 1024 }; /* 8 MiB of Q for 32 heads of 128 */

static const char tensor_letter[] = "qkv";

struct capture {
	struct capture_info info;
	struct arc *arc; /* arc, st or values is set, or info.random */
	struct safetensors *st;
	uint64_t seed;				       /* of random values */
	const bf16_t *values;			       /* of capture_memory() */
	const struct safetensors_tensor *(*tensor)[3]; /* of st, by index into info.layer */
};

/* ---- safetensors ---- */

/* Split "layers.N.q" into the layer number and the tensor.  False for any other name. */
static bool parse_name(const char *name, int *layer, enum capture_tensor *t)
{
	static const char head[] = "layers.";
	const char *dot, *letter;
	uint64_t n;

	if (strncmp(name, head, sizeof head - 1) != 0)
		return false;
	name += sizeof head - 1;
	dot = strchr(name, '.');
	if (!dot || !num_u64(name, (size_t)(dot - name), &n) || n > CAPTURE_MAX_LAYER || !dot[1] ||
	    dot[2])
		return false;
	letter = strchr(tensor_letter, dot[1]);
	if (!letter)
		return false;
	*layer = (int)n;
	*t = (enum capture_tensor)(letter - tensor_letter);
	return true;
}

/* Enter every Q, K and V tensor of the file into by_layer. */
static enum ar_status find_tensors(const struct safetensors *s,
				   const struct safetensors_tensor *(*by_layer)[3],
				   const char *path, struct ar_err *err)
{
	bool any = false;

	for (size_t i = 0; i < safetensors_count(s); i++) {
		const struct safetensors_tensor *x = safetensors_at(s, i);
		enum capture_tensor t;
		int layer;

		if (!parse_name(x->name, &layer, &t))
			continue;
		if (by_layer[layer][t])
			return ar_fail(err, AR_DATA, "%s: layer %d has two tensors %c", path, layer,
				       tensor_letter[t]);
		if (strcmp(x->dtype, "BF16") != 0 || x->n_dim != 3)
			return ar_fail(err, AR_DATA,
				       "%s: tensor '%s': want BF16 [heads, tokens, "
				       "head_dim]",
				       path, x->name);
		by_layer[layer][t] = x;
		any = true;
	}
	if (!any)
		return ar_fail(err, AR_DATA,
			       "%s: no tensor is named like layers.0.q; not a capture", path);
	return AR_OK;
}

/* Take the shape from the first layer; all layers must have it. */
static enum ar_status set_shape(struct capture_info *info,
				const struct safetensors_tensor *const *qkv, const char *path,
				struct ar_err *err)
{
	const int64_t *q = qkv[CAPTURE_Q]->dim, *k = qkv[CAPTURE_K]->dim;

	if (q[0] < 1 || q[0] > CAPTURE_MAX_HEADS || k[0] < 1 || k[0] > CAPTURE_MAX_HEADS ||
	    q[1] < 1 || q[1] > CAPTURE_MAX_TOK || q[2] < 1 || q[2] > CAPTURE_MAX_DIM)
		return ar_fail(err, AR_DATA, "%s: tensor '%s': a size is out of range", path,
			       qkv[CAPTURE_Q]->name);
	info->q_heads = (int)q[0];
	info->kv_heads = (int)k[0];
	info->n_tok = q[1];
	info->head_dim = (int)q[2];
	return AR_OK;
}

static enum ar_status check_shape(const struct capture_info *info,
				  const struct safetensors_tensor *const *qkv, const char *path,
				  struct ar_err *err)
{
	for (int t = 0; t < 3; t++) {
		const int heads = t == CAPTURE_Q ? info->q_heads : info->kv_heads;
		const int64_t *dim = qkv[t]->dim;

		if (dim[0] != heads || dim[1] != info->n_tok || dim[2] != info->head_dim)
			return ar_fail(err, AR_DATA,
				       "%s: tensor '%s' is [%" PRId64 ", %" PRId64 ", %" PRId64
				       "]; want [%d, %" PRId64 ", %d] like the others",
				       path, qkv[t]->name, dim[0], dim[1], dim[2], heads,
				       info->n_tok, info->head_dim);
	}
	return AR_OK;
}

/* List the layers that have tensors, ascending. */
static enum ar_status set_layers(struct capture *c,
				 const struct safetensors_tensor *const (*by_layer)[3],
				 const char *path, struct ar_err *err)
{
	struct capture_info *info = &c->info;
	int n = 0;

	for (int l = 0; l <= CAPTURE_MAX_LAYER; l++)
		n += by_layer[l][0] || by_layer[l][1] || by_layer[l][2];
	info->layer = calloc((size_t)n, sizeof *info->layer);
	c->tensor = calloc((size_t)n, sizeof *c->tensor);
	if (!info->layer || !c->tensor)
		return ar_nomem(err);
	for (int l = 0; l <= CAPTURE_MAX_LAYER; l++) {
		const struct safetensors_tensor *const *qkv = by_layer[l];
		enum ar_status st = AR_OK;

		if (!qkv[0] && !qkv[1] && !qkv[2])
			continue;
		for (int t = 0; t < 3; t++)
			if (!qkv[t])
				return ar_fail(err, AR_DATA, "%s: layer %d has no tensor %c", path,
					       l, tensor_letter[t]);
		if (!info->n_layers)
			st = set_shape(info, qkv, path, err);
		if (!st)
			st = check_shape(info, qkv, path, err);
		if (st)
			return st;
		memcpy(c->tensor[info->n_layers], qkv, sizeof *c->tensor);
		info->layer[info->n_layers++] = l;
	}
	return AR_OK;
}

/* Value of key, or else of its other spelling; NULL: neither is present. */
static const char *meta2(const struct safetensors *s, const char *key, const char *other)
{
	const char *v = safetensors_meta(s, key);

	return v ? v : safetensors_meta(s, other);
}

static enum ar_status read_rope_applied(struct capture *c, const char *path, struct ar_err *err)
{
	const char *v = meta2(c->st, "rope_applied", "rope");

	c->info.rope_applied = !v || !strcmp(v, "true") || !strcmp(v, "applied");
	if (!v)
		log_warn("%s: no 'rope_applied' in the metadata; taking Q and K as after RoPE",
			 path);
	else if (!c->info.rope_applied && strcmp(v, "false") != 0)
		return ar_fail(err, AR_DATA,
			       "%s: metadata rope_applied '%.32s': want true or false", path, v);
	return AR_OK;
}

static enum ar_status read_rope(struct capture *c, const char *path, struct ar_err *err)
{
	const char *theta = safetensors_meta(c->st, "rope_theta");
	const char *scaling = safetensors_meta(c->st, "rope_scaling");
	cJSON *o = NULL;
	double x = 0;
	enum ar_status st;

	if (theta && (!num_real(theta, &x) || x < 1 || x > 1e12))
		return ar_fail(err, AR_DATA,
			       "%s: metadata rope_theta '%.32s': want a number from 1 to 1e12",
			       path, theta);
	if (scaling) {
		o = json_parse_all(scaling, NULL);
		if (!o && json_nomem())
			return ar_nomem(err);
		if (!o)
			return ar_fail(err, AR_DATA, "%s: metadata rope_scaling is malformed JSON",
				       path);
	}
	st = rope_parse(&c->info.rope, x, o, path, err);
	cJSON_Delete(o);
	return st;
}

static enum ar_status read_meta(struct capture *c, const char *path, struct ar_err *err)
{
	const char *prompt = meta2(c->st, "n_prompt", "prompt_tokens");
	const char *model = safetensors_meta(c->st, "model");
	uint64_t n = (uint64_t)c->info.n_tok;
	enum ar_status st;

	if (prompt && (!num_u64(prompt, strlen(prompt), &n) || n > CAPTURE_MAX_TOK))
		return ar_fail(err, AR_DATA,
			       "%s: metadata n_prompt '%.32s': want a count of tokens", path,
			       prompt);
	c->info.n_prompt = (int64_t)n;
	st = read_rope_applied(c, path, err);
	if (!st)
		st = read_rope(c, path, err);
	if (st)
		return st;
	c->info.model = strdup(model ? model : "");
	return c->info.model ? AR_OK : ar_nomem(err);
}

static enum ar_status open_safetensors(struct capture *c, const char *path, struct ar_err *err)
{
	const struct safetensors_tensor *(*by_layer)[3];
	enum ar_status st = safetensors_open(&c->st, path, err);

	if (st)
		return st;
	by_layer = calloc(CAPTURE_MAX_LAYER + 1, sizeof *by_layer);
	if (!by_layer)
		return ar_nomem(err);
	c->info.container = "safetensors";
	st = find_tensors(c->st, by_layer, path, err);
	if (!st)
		st = set_layers(c, (const struct safetensors_tensor *const(*)[3])by_layer, path,
				err);
	if (!st)
		st = read_meta(c, path, err);
	free(by_layer);
	return st;
}

/* ---- both formats ---- */

static enum ar_status check_info(const struct capture_info *info, const char *path,
				 struct ar_err *err)
{
	if (info->q_heads % info->kv_heads)
		return ar_fail(err, AR_DATA, "%s: %d KV heads do not divide %d query heads", path,
			       info->kv_heads, info->q_heads);
	if (info->head_dim % 2)
		return ar_fail(err, AR_DATA, "%s: head_dim %d is odd", path, info->head_dim);
	if (info->n_prompt > info->n_tok)
		return ar_fail(err, AR_DATA,
			       "%s: prompt of %" PRId64 " tokens in a sequence of %" PRId64, path,
			       info->n_prompt, info->n_tok);
	if (!info->rope_applied && !(info->rope.theta > 0))
		return ar_fail(err, AR_DATA,
			       "%s: Q and K are before RoPE but rope_theta is missing; "
			       "add it to the file",
			       path);
	return rope_check_dim(&info->rope, info->head_dim, path, err);
}

static enum ar_status open_by_content(struct capture *c, const char *path, struct ar_err *err)
{
	struct infile f;
	unsigned char head[16];
	size_t n;
	uint64_t size;
	enum ar_status st = infile_open(&f, path, err);

	if (st)
		return st;
	size = f.size;
	n = size < sizeof head ? (size_t)size : sizeof head;
	st = infile_read(&f, 0, head, n, err);
	infile_release(&f);
	if (st)
		return st;
	c->info.file_bytes = size;
	if (arc_sniff(head, n)) {
		c->info.container = "arc";
		return arc_open(&c->arc, path, &c->info, err);
	}
	if (safetensors_sniff(head, n, size))
		return open_safetensors(c, path, err);
	return ar_fail(err, AR_DATA, "%s: neither an .arc file nor safetensors, or truncated",
		       path);
}

enum ar_status capture_open(struct capture **out, const char *path, struct ar_err *err)
{
	const char *slash = strrchr(path, '/');
	struct capture *c = calloc(1, sizeof *c);
	enum ar_status st;

	*out = NULL;
	if (!c)
		return ar_nomem(err);
	if (random_named(path)) {
		free(c);
		return ar_fail(err, AR_USAGE,
			       "%s: random values serve 'run' and 'select' only; name a file, with "
			       "./ before such a name",
			       path);
	}
	c->info.name = strdup(slash ? slash + 1 : path);
	st = c->info.name ? open_by_content(c, path, err) : ar_nomem(err);
	if (!st)
		st = check_info(&c->info, path, err);
	if (st)
		capture_close(c);
	else
		*out = c;
	return st;
}

/* A capture without values.  Of shape it takes the sizes. */
static enum ar_status capture_new(struct capture **out, const char *name,
				  const struct capture_info *shape, struct ar_err *err)
{
	struct capture *c = calloc(1, sizeof *c);

	*out = c;
	if (!c)
		return ar_nomem(err);
	c->info = (struct capture_info){ .name = strdup(name),
					 .model = strdup(""),
					 .n_layers = shape->n_layers,
					 .layer = calloc((size_t)shape->n_layers, sizeof(int)),
					 .q_heads = shape->q_heads,
					 .kv_heads = shape->kv_heads,
					 .head_dim = shape->head_dim,
					 .n_tok = shape->n_tok,
					 .n_prompt = shape->n_tok };
	return c->info.name && c->info.model && c->info.layer ? AR_OK : ar_nomem(err);
}

enum ar_status capture_random(struct capture **out, const char *arg,
			      const struct capture_info *shape, struct ar_err *err)
{
	struct capture *c;
	enum ar_status st = capture_new(&c, arg, shape, err);

	*out = NULL;
	if (!st)
		st = random_seed(arg, &c->seed, err);
	if (st) {
		capture_close(c);
		return st;
	}
	c->info.container = "random";
	c->info.random = c->info.rope_applied = true;
	for (int i = 0; i < c->info.n_layers; i++)
		c->info.layer[i] = i;
	*out = c;
	return AR_OK;
}

enum ar_status capture_memory(struct capture **out, const struct capture_info *shape,
			      const bf16_t *values, struct ar_err *err)
{
	struct capture *c;
	enum ar_status st = capture_new(&c, shape->name, shape, err);

	*out = NULL;
	if (st) {
		capture_close(c);
		return st;
	}
	c->info.container = "memory";
	c->info.rope_applied = shape->rope_applied;
	c->info.rope = shape->rope;
	memcpy(c->info.layer, shape->layer, (size_t)shape->n_layers * sizeof *shape->layer);
	c->values = values;
	*out = c;
	return AR_OK;
}

void capture_close(struct capture *c)
{
	if (!c)
		return;
	arc_close(c->arc);
	safetensors_close(c->st);
	free(c->tensor);
	free(c->info.name);
	free(c->info.model);
	free(c->info.layer);
	free(c);
}

enum ar_status capture_sum(const struct capture *c, char hex[65], struct ar_err *err)
{
	*hex = 0;
	return c->arc ? arc_sum(c->arc, hex, err) : AR_OK;
}

const struct capture_info *capture_info(const struct capture *c)
{
	return &c->info;
}

int capture_find_layer(const struct capture_info *info, uint64_t number)
{
	for (int i = 0; i < info->n_layers; i++)
		if ((uint64_t)info->layer[i] == number)
			return i;
	return -1;
}

static int heads_of(const struct capture_info *info, enum capture_tensor t)
{
	return t == CAPTURE_Q ? info->q_heads : info->kv_heads;
}

static void copy_values(const struct capture *c, int i, enum capture_tensor t, int64_t tok0,
			int64_t n, bf16_t *out)
{
	const struct capture_info *info = &c->info;
	const int head0[] = { 0, info->q_heads, info->q_heads + info->kv_heads };
	const size_t row = (size_t)info->head_dim, head = (size_t)info->n_tok * row;
	const size_t first = (size_t)(i * (info->q_heads + 2 * info->kv_heads) + head0[t]);

	for (size_t h = 0; h < (size_t)heads_of(info, t); h++)
		memcpy(out + h * (size_t)n * row,
		       c->values + (first + h) * head + (size_t)tok0 * row,
		       (size_t)n * row * sizeof *out);
}

enum ar_status capture_read(struct capture *c, int i, enum capture_tensor t, int64_t tok0,
			    int64_t n, bf16_t *out, struct ar_err *err)
{
	const struct capture_info *info = &c->info;
	const size_t row = (size_t)info->head_dim;

	assert(i >= 0 && i < info->n_layers);
	if (tok0 < 0 || n < 0 || tok0 > info->n_tok || n > info->n_tok - tok0)
		return ar_fail(err, AR_USAGE, "%s: tokens %" PRId64 " to %" PRId64 " of %" PRId64,
			       info->name, tok0, tok0 + n - 1, info->n_tok);
	if (info->random) {
		random_values(c->seed, info->layer[i], t, heads_of(info, t), info->head_dim, tok0,
			      n, out);
		return AR_OK;
	}
	if (c->arc)
		return arc_read(c->arc, i, t, tok0, n, out, err);
	if (c->values) {
		copy_values(c, i, t, tok0, n, out);
		return AR_OK;
	}
	for (int h = 0; h < heads_of(info, t); h++) {
		uint64_t from = ((uint64_t)h * (uint64_t)info->n_tok + (uint64_t)tok0) * row;
		enum ar_status st = safetensors_read(c->st, c->tensor[i][t], from * sizeof *out,
						     out + (size_t)h * (size_t)n * row,
						     (size_t)n * row * sizeof *out, err);

		if (st)
			return st;
	}
	return AR_OK;
}

static bool is_finite(bf16_t x)
{
	return (x & 0x7f80) != 0x7f80;
}

static bool all_finite(const bf16_t *x, size_t n)
{
	bool good = true;

	for (size_t i = 0; i < n; i++)
		good &= is_finite(x[i]);
	return good;
}

enum ar_status capture_read_finite(struct capture *c, int i, enum capture_tensor t, int64_t tok0,
				   int64_t n, bf16_t *out, struct ar_err *err)
{
	const struct capture_info *info = &c->info;
	size_t dim = (size_t)info->head_dim, size = (size_t)heads_of(info, t) * (size_t)n * dim;
	size_t at = 0;
	enum ar_status st = capture_read(c, i, t, tok0, n, out, err);

	if (st || all_finite(out, size))
		return st;
	while (is_finite(out[at]))
		at++;
	at /= dim; /* index of (head, token) */
	return ar_fail(err, AR_DATA,
		       "%s: layer %d %c, head %zu, token %zu is not finite; capture "
		       "it again",
		       info->name, info->layer[i], tensor_letter[t], at / (size_t)n,
		       (size_t)tok0 + at % (size_t)n);
}

/* ---- pack and unpack ---- */

/* index[k]: index in the capture of the k-th layer to pack. */
static enum ar_status choose_layers(const struct capture_info *info, const struct capture_pack *p,
				    int *index, struct ar_err *err)
{
	int last = -1;

	for (int k = 0; k < p->n_layers; k++) {
		index[k] = capture_find_layer(info, (uint64_t)p->layer[k]);
		if (index[k] < 0)
			return ar_fail(err, AR_USAGE, "%s has no layer %d", info->name,
				       p->layer[k]);
		if (index[k] <= last)
			return ar_fail(err, AR_USAGE,
				       "layers to pack: want ascending numbers, not %d after %d",
				       p->layer[k], info->layer[last]);
		last = index[k];
	}
	for (int k = 0; !p->n_layers && k < info->n_layers; k++)
		index[k] = k;
	return AR_OK;
}

/* Write the frames of one layer, in file order. */
static enum ar_status pack_layer(struct capture *c, int i, const struct capture_info *to,
				 struct arc_writer *w, bf16_t *buf, struct ar_err *err)
{
	for (int t = 0; t < 3; t++)
		for (int64_t at = 0; at < to->n_tok; at += to->frame_tok) {
			int64_t n = to->n_tok - at < to->frame_tok ? to->n_tok - at : to->frame_tok;
			enum ar_status st = capture_read(c, i, (enum capture_tensor)t, at, n, buf,
							 err);

			if (!st)
				st = arc_put(w, buf,
					     (size_t)n * (size_t)heads_of(to, t) *
						     (size_t)to->head_dim,
					     err);
			if (!st && ar_interrupted())
				st = ar_fail(err, AR_INTERRUPTED, "interrupted");
			if (st)
				return st;
		}
	return AR_OK;
}

static enum ar_status pack_layers(struct capture *c, const char *path,
				  const struct capture_info *to, const int *index, int level,
				  struct ar_err *err)
{
	struct arc_writer *w;
	bf16_t *buf;
	enum ar_status st = arc_create(&w, path, to, level, err);

	if (st)
		return st;
	buf = calloc((size_t)(to->frame_tok < to->n_tok ? to->frame_tok : to->n_tok),
		     (size_t)to->q_heads * (size_t)to->head_dim * sizeof *buf);
	if (!buf)
		st = ar_nomem(err);
	for (int k = 0; !st && k < to->n_layers; k++)
		st = pack_layer(c, index[k], to, w, buf, err);
	if (!st)
		st = arc_finish(w, err);
	free(buf);
	arc_destroy(w);
	return st;
}

enum ar_status capture_pack(struct capture *c, const char *path, const struct capture_pack *p,
			    struct ar_err *err)
{
	struct capture_info to = c->info;
	int *index, *layer;
	enum ar_status st;

	if (p->n_tok < 0 || p->n_tok > c->info.n_tok)
		return ar_fail(err, AR_USAGE, "%s has %" PRId64 " tokens, not %" PRId64,
			       c->info.name, c->info.n_tok, p->n_tok);
	to.n_layers = p->n_layers ? p->n_layers : c->info.n_layers;
	to.n_tok = p->n_tok ? p->n_tok : c->info.n_tok;
	to.n_prompt = to.n_prompt < to.n_tok ? to.n_prompt : to.n_tok;
	to.frame_tok = p->frame_tok ? p->frame_tok : FRAME_TOK;
	index = calloc((size_t)to.n_layers, sizeof *index);
	layer = calloc((size_t)to.n_layers, sizeof *layer);
	if (!index || !layer) {
		st = ar_nomem(err);
		goto out;
	}
	st = choose_layers(&c->info, p, index, err);
	if (st)
		goto out;
	for (int k = 0; k < to.n_layers; k++)
		layer[k] = c->info.layer[index[k]];
	to.layer = layer;
	st = pack_layers(c, path, &to, index, p->level, err);
out:
	free(index);
	free(layer);
	return st;
}

/* Write the header of all tensors: q, k, v of each layer in turn. */
static enum ar_status unpack_header(const struct capture_info *info, struct outfile *f,
				    struct ar_err *err)
{
	size_t n = (size_t)info->n_layers * 3;
	struct safetensors_tensor *tensor = calloc(n, sizeof *tensor);
	char(*name)[32] = calloc(n, sizeof *name), *scaling = NULL;
	char theta[32], n_prompt[32];
	bool scaled = rope_is_scaled(&info->rope);
	cJSON *o = scaled ? rope_scaling_json(&info->rope) : NULL;
	enum ar_status st;

	if (o)
		scaling = cJSON_PrintUnformatted(o);
	if (!tensor || !name || (scaled && !scaling)) {
		st = ar_nomem(err);
		goto out;
	}
	for (size_t k = 0; k < n; k++) {
		snprintf(name[k], sizeof *name, "layers.%d.%c", info->layer[k / 3],
			 tensor_letter[k % 3]);
		tensor[k] = (struct safetensors_tensor){
			.name = name[k],
			.n_dim = 3,
			.dim = { heads_of(info, (enum capture_tensor)(k % 3)), info->n_tok,
				 info->head_dim },
		};
	}
	snprintf(theta, sizeof theta, "%.17g", info->rope.theta);
	snprintf(n_prompt, sizeof n_prompt, "%" PRId64, info->n_prompt);
	st = safetensors_write_header(f, tensor, n,
				      (const char *const[]){
					      "model", info->model, "n_prompt", n_prompt,
					      "rope_applied", info->rope_applied ? "true" : "false",
					      "rope_theta", info->rope.theta > 0 ? theta : NULL,
					      "rope_scaling", scaling, NULL },
				      err);
out:
	cJSON_Delete(o);
	cJSON_free(scaling);
	free(name);
	free(tensor);
	return st;
}

/* A whole tensor is in memory at a time: safetensors is head-major, but a frame holds all heads of
 * its tokens. */
static enum ar_status unpack_tensors(struct capture *c, struct outfile *f, struct ar_err *err)
{
	const struct capture_info *info = &c->info;
	size_t row = (size_t)info->n_tok * (size_t)info->head_dim;
	bf16_t *buf = calloc((size_t)info->q_heads * row, sizeof *buf);
	enum ar_status st = buf ? AR_OK : ar_nomem(err);

	for (int k = 0; !st && k < info->n_layers * 3; k++) {
		enum capture_tensor t = (enum capture_tensor)(k % 3);

		st = capture_read(c, k / 3, t, 0, info->n_tok, buf, err);
		if (!st)
			st = outfile_write(f, buf, (size_t)heads_of(info, t) * row * sizeof *buf,
					   err);
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	free(buf);
	return st;
}

enum ar_status capture_unpack(struct capture *c, const char *path, struct ar_err *err)
{
	struct outfile f;
	enum ar_status st = outfile_open(&f, path, err);

	if (st)
		return st;
	st = unpack_header(&c->info, &f, err);
	if (!st)
		st = unpack_tensors(c, &f, err);
	if (!st)
		st = outfile_commit(&f, err);
	outfile_release(&f);
	return st;
}
