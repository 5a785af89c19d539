/* attnreplay select: what methods select for one chunk of a capture, and what it costs in
 * accuracy.  The chunk is a batch of one request on a backend, behind its context. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/number.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/prepare.h"
#include "src/cmd.h"
#include "src/select/select.h"

struct args {
	struct opt_list captures;
	char *model, *methods, *layers, *json, *csv, *svg;
	int64_t tp, context, chunk, prompt, head;
	int backend, picture;
	bool scores;
};

#define OFF(member) offsetof(struct args, member)
static const char *const backend_names[] = { "cpu", "cuda", NULL };
static const char *const pictures[] = { "auto", "ascii", "unicode", "none", NULL };
static const struct opt opts[] = {
	{ .name = "capture", .type = OPT_LIST, .off = OFF(captures), .arg = "FILE",
	  .help = "capture to select from; repeat the option for more" },
	{ .name = "layer", .type = OPT_STR, .off = OFF(layers), .arg = "LIST",
	  .help = "layers of the model, such as 0,4-7; all that the capture holds when not given" },
	{ .name = "context", .type = OPT_INT, .off = OFF(context), .arg = "N", .def = "-1",
	  .min = -1, .max = CAPTURE_MAX_TOK,
	  .help = "tokens before the chunk; -1: the chunk is the last of the prompt" },
	{ .name = "chunk", .type = OPT_INT, .off = OFF(chunk), .arg = "N", .def = "1024",
	  .min = 1, .max = 1 << 20, .help = "tokens of the chunk" },
	{ .name = "prompt-tokens", .type = OPT_INT, .off = OFF(prompt), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_TOK,
	  .help = "tokens of the chunk's prompt; 0: the capture's, at least the chunk's end" },
	{ .name = "method", .type = OPT_STR, .off = OFF(methods), .arg = "LIST",
	  .def = "compact-fp", .help = "methods, separated by commas; see 'attnreplay methods'" },
	{ .name = "model", .type = OPT_STR, .off = OFF(model), .arg = "NAME",
	  .help = "model of the capture, for RoPE where that lacks it: a preset or a config.json" },
	{ .name = "tp", .type = OPT_INT, .off = OFF(tp), .arg = "N", .def = "1", .min = 1,
	  .max = 1024, .help = "tensor parallel size: the heads of one of N ranks" },
	{ .name = "backend", .type = OPT_ENUM, .off = OFF(backend), .arg = "NAME", .def = "cpu",
	  .choice = backend_names, .help = "cpu: the references; cuda: the kernels" },
	{ .name = "head", .type = OPT_INT, .off = OFF(head), .arg = "H", .def = "-1", .min = -1,
	  .max = CAPTURE_MAX_HEADS,
	  .help = "show this query head with its lists; -1: all heads and a mean picture" },
	{ .name = "picture", .type = OPT_ENUM, .off = OFF(picture), .arg = "HOW", .def = "auto",
	  .choice = pictures, .help = "how the mask is drawn in the text" },
	{ .name = "scores", .type = OPT_FLAG, .off = OFF(scores),
	  .help = "put the scores of blocks or tokens into the JSON, where the selector has them" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = "write every list as JSON to FILE" },
	{ .name = "csv", .type = OPT_STR, .off = OFF(csv), .arg = "FILE",
	  .help = "write a line for each capture, method and layer to FILE" },
	{ .name = "svg", .type = OPT_STR, .off = OFF(svg), .arg = "FILE",
	  .help = "draw the masks to FILE" },
	{ 0 }
};

/* ---- outputs ---- */

struct outputs {
	const struct args *a;
	enum select_picture picture;
	FILE *json, *csv, *svg;
	FILE *body;			/* of the drawing, whose size is known at the end */
	char *drawn;
	size_t len;
	double height;
	bool opened;
	int n;
};

static enum ar_status make(FILE **f, const char *path, struct ar_err *err)
{
	if (!path)
		return AR_OK;
	*f = fopen(path, "w");
	return *f ? AR_OK :
		    ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(errno));
}

static bool speaks_utf8(void)
{
	const char *all = getenv("LC_ALL"), *type = getenv("LC_CTYPE"), *lang = getenv("LANG");
	const char *name = all && *all ? all : type && *type ? type : lang ? lang : "";

	return strstr(name, "UTF-8") || strstr(name, "utf8");
}

/* Once the first selection is sure to be made, so that a refusal leaves files as they were. */
static enum ar_status open_outputs(struct outputs *o, struct ar_err *err)
{
	const struct args *a = o->a;
	enum ar_status st;

	if (o->opened)
		return AR_OK;
	o->opened = true;
	o->picture = (enum select_picture)a->picture;
	if (o->picture == SELECT_AUTO)
		o->picture = isatty(STDOUT_FILENO) && speaks_utf8() ? SELECT_UNICODE : SELECT_ASCII;
	st = make(&o->json, a->json, err);
	if (!st)
		st = make(&o->csv, a->csv, err);
	if (!st)
		st = make(&o->svg, a->svg, err);
	if (!st && o->svg) {
		o->body = open_memstream(&o->drawn, &o->len);
		st = o->body ? AR_OK : ar_nomem(err);
	}
	if (!st && o->csv)
		select_csv_head(o->csv);
	return st;
}

static const char json_head[] = "{\"schema\":\"attnreplay-select-1\",\"selections\":[\n";

static enum ar_status put(struct outputs *o, const struct select_result *r, struct ar_err *err)
{
	int head = (int)o->a->head;
	enum ar_status st;

	if (o->n)
		putchar('\n');
	st = select_put_text(r, head, o->picture, stdout, err);
	if (!st && o->json) {
		fputs(o->n ? ",\n" : json_head, o->json);
		st = select_put_json(r, o->json, err);
	}
	if (!st && o->csv)
		select_put_csv(r, o->csv);
	if (!st && o->svg)
		st = select_put_svg(r, head, o->body, &o->height, err);
	o->n++;
	return st;
}

static void finish_svg(struct outputs *o)
{
	fprintf(o->svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"10\">\n"
		"<style>.frame{fill:none;stroke:#999}.chunk{stroke:#c33;stroke-dasharray:2}"
		".title{font-size:13px}rect{fill:#246}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff\"/>\n",
		SELECT_SVG_WIDTH, o->height);
	fwrite(o->drawn, 1, o->len, o->svg);
	fputs("</svg>\n", o->svg);
}

static enum ar_status shut(FILE *f, const char *path, enum ar_status st, struct ar_err *err)
{
	bool bad = f && ferror(f);

	if (!f)
		return st;
	bad |= fclose(f) != 0;
	return st || !bad ? st : ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(errno));
}

static enum ar_status close_outputs(struct outputs *o, enum ar_status st, struct ar_err *err)
{
	const struct args *a = o->a;

	if (o->body && fclose(o->body) && !st)
		st = ar_nomem(err);
	if (!st && o->json)
		fputs("\n]}\n", o->json);
	if (!st && o->svg)
		finish_svg(o);
	free(o->drawn);
	st = shut(o->json, a->json, st, err);
	st = shut(o->csv, a->csv, st, err);
	return shut(o->svg, a->svg, st, err);
}

/* ---- a capture ---- */

struct chunk {
	struct capture *capture;
	struct model model;
	int *layer, n_layers;		/* of the model, that are looked at */
	int *captured;			/* [model.n_layers] */
	int ctx, chunk, known;
};

static void release_chunk(struct chunk *c)
{
	capture_close(c->capture);
	model_release(&c->model);
	free(c->layer);
	free(c->captured);
}

/* What the capture alone says of its model. */
static enum ar_status model_of_capture(struct model *m, const struct capture_info *info,
				       struct ar_err *err)
{
	const struct layer_spec l = { .mixer = MIX_FULL, .q_heads = info->q_heads,
				      .kv_heads = info->kv_heads, .head_dim = info->head_dim };

	*m = (struct model){ .tp = 1, .max_len = info->n_tok, .rope = info->rope };
	snprintf(m->name, sizeof m->name, "%s", info->model);
	return model_set_layers(m, info->layer[info->n_layers - 1] + 1, &l, err);
}

static enum ar_status load_model(struct chunk *c, const struct args *a,
				 struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);
	enum ar_status st = a->model ? model_load(&c->model, a->model, err) :
				       model_of_capture(&c->model, info, err);
	int q_heads, kv_heads;

	if (st)
		return st;
	q_heads = c->model.layer[0].q_heads;
	kv_heads = c->model.layer[0].kv_heads;
	st = model_split(&c->model, (int)a->tp, err);
	if (!st)
		st = prepare_check_model(info, &c->model, q_heads, kv_heads, err);
	if (!st && info->layer[info->n_layers - 1] >= c->model.n_layers)
		return ar_fail(err, AR_USAGE,
			       "%s holds layer %d, model %s has %d; take the model it was captured "
			       "from", info->name, info->layer[info->n_layers - 1],
			       c->model.name, c->model.n_layers);
	return st;
}

static enum ar_status parse_layers(struct chunk *c, const char *list, struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);
	const char *s = list;

	for (;; s++) {
		size_t n = strcspn(s, ",");
		uint64_t from, to;

		if (!num_range(s, n, &from, &to))
			return ar_fail(err, AR_USAGE,
				       "layer '%s': want numbers and ranges such as 0,4,8-11",
				       list);
		for (; from <= to; from++) {
			if (capture_find_layer(info, from) < 0)
				return ar_fail(err, AR_USAGE, "layer '%s': %s does not hold layer "
					       "%" PRIu64 "; 'attnreplay capture info' lists those "
					       "it holds", list, info->name, from);
			if (c->n_layers == info->n_layers)
				return ar_fail(err, AR_USAGE, "layer '%s': a layer is listed twice",
					       list);
			c->layer[c->n_layers++] = (int)from;
		}
		s += n;
		if (!*s)
			return AR_OK;
	}
}

static enum ar_status load_layers(struct chunk *c, const char *list, struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);

	c->layer = calloc((size_t)info->n_layers, sizeof *c->layer);
	c->captured = calloc((size_t)c->model.n_layers, sizeof *c->captured);
	if (!c->layer || !c->captured)
		return ar_nomem(err);
	for (int i = 0; i < info->n_layers; i++)
		c->captured[info->layer[i]] = i;
	if (list)
		return parse_layers(c, list, err);
	c->n_layers = info->n_layers;
	memcpy(c->layer, info->layer, (size_t)info->n_layers * sizeof *c->layer);
	return AR_OK;
}

static enum ar_status place_chunk(struct chunk *c, const struct args *a,
				  struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);
	int64_t context = a->context >= 0 ? a->context :
			  info->n_prompt > a->chunk ? info->n_prompt - a->chunk : 0;
	int64_t end = context + a->chunk, prompt = a->prompt ? a->prompt : info->n_prompt;

	if (end > info->n_tok)
		return ar_fail(err, AR_USAGE, "%s has %" PRId64 " tokens, a chunk of %" PRId64
			       " behind %" PRId64 " needs %" PRId64 "; lower --context or --chunk",
			       info->name, info->n_tok, a->chunk, context, end);
	if (a->prompt && prompt < end)
		return ar_fail(err, AR_USAGE,
			       "prompt-tokens %" PRId64 ": the chunk ends at %" PRId64, prompt,
			       end);
	c->ctx = (int)context;
	c->chunk = (int)a->chunk;
	c->known = (int)(prompt > end ? prompt : end);
	return AR_OK;
}

static enum ar_status load_chunk(struct chunk *c, const char *path, const struct args *a,
				 struct ar_err *err)
{
	enum ar_status st = capture_open(&c->capture, path, err);

	if (!st)
		st = load_model(c, a, err);
	if (!st && a->head >= c->model.layer[0].q_heads)
		st = ar_fail(err, AR_USAGE, "head %" PRId64 ": there are %d query heads", a->head,
			     c->model.layer[0].q_heads);
	if (!st)
		st = load_layers(c, a->layers, err);
	return st ? st : place_chunk(c, a, err);
}

/* ---- a method on a chunk ---- */

struct shown {
	const struct backend *backend;
	const struct chunk *chunk;
	struct method *method;
	struct request req;		/* the trace: one, whose chunk the backend runs */
	struct trace trace;
	struct batch_entry entry;
	struct backend_env env;
	void *self;
	struct accuracy *acc;
	struct selection_count *count;
	struct outputs *out;
	bool scores;
};

static enum ar_status show_layer(struct shown *x, int i, struct ar_err *err)
{
	const struct chunk *c = x->chunk;
	const struct layer_spec *l = &c->model.layer[c->layer[i]];
	struct method_selection sel = { .scored = x->scores };
	enum ar_status st = x->backend->compare(x->self, &x->entry, i, x->acc, x->count, &sel, err);
	const struct select_result r = {
		.capture = capture_info(c->capture)->name, .model = c->model.name,
		.backend = x->backend->name, .method = x->method, .layer = c->layer[i],
		.shape = { l->q_heads, l->kv_heads, l->head_dim, method_page_tok(x->method) },
		.ctx = c->ctx, .chunk = c->chunk, .left = c->known - c->ctx - c->chunk,
		.sel = &sel, .count = x->count, .acc = x->acc,
	};

	if (!st)
		st = put(x->out, &r, err);
	method_selection_release(&sel);
	return st;
}

static enum ar_status open_backend(struct shown *x, struct ar_err *err)
{
	const struct backend *b = x->backend;
	void *options = calloc(1, b->opts_size + 1);
	struct opt_group g[] = { { .opts = b->opts, .base = options }, { 0 } };
	enum ar_status st = options ? opt_init(g, err) : ar_nomem(err);

	if (!st)
		st = b->open(&x->self, options, &x->env, err);
	if (!st)
		st = b->start(x->self, x->env.num_blocks, err);
	if (options)
		opt_release(g);
	free(options);
	return st;
}

/* The chunk runs when it is compared: that its rows are in the cache takes no more than to run the
 * last of them. */
static enum ar_status show_layers(struct shown *x, struct ar_err *err)
{
	struct iter_cost unused;
	struct batch_entry last = x->entry;
	struct batch b = { .entry = &last, .n = 1, .prefill_tok = 1 };
	enum ar_status st = open_backend(x, err);

	last.start += last.n_tok - 1;
	last.n_tok = 1;
	if (!st)
		st = open_outputs(x->out, err);
	if (!st)
		st = x->backend->run(x->self, &b, &unused, err);
	for (int i = 0; i < x->chunk->n_layers && !st; i++) {
		st = show_layer(x, i, err);
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	x->backend->close(x->self);
	return st;
}

static enum ar_status shown_init(struct shown *x, struct chunk *c, const char *method,
				 struct ar_err *err)
{
	static const uint16_t capture_of[] = { 0 };
	int end = c->ctx + c->chunk;
	enum ar_status st = method_parse(&x->method, method, err);

	x->chunk = c;
	x->req = (struct request){ .prompt_tok = (uint32_t)c->known, .output_tok = 1 };
	x->trace = (struct trace){ .req = &x->req, .n = 1 };
	x->entry = (struct batch_entry){ .start = (uint32_t)c->ctx, .n_tok = (uint32_t)c->chunk,
					 .known = (uint32_t)c->known, .emit = c->known == end };
	x->env = (struct backend_env){
		.trace = &x->trace, .model = &c->model, .capture = &c->capture, .n_capture = 1,
		.capture_of = capture_of, .captured_layer = c->captured, .run_layer = c->layer,
		.n_run_layers = c->n_layers, .method = x->method, .max_batched_tok = c->chunk,
		.max_seqs = 1, .max_len = end, .num_blocks = end / 128 + 2, .block_tok = 128,
		.attention_only = true,
	};
	return st;
}

static enum ar_status show(const struct backend *backend, struct chunk *c, const char *method,
			   struct outputs *out, struct ar_err *err)
{
	const struct layer_spec *l = &c->model.layer[0];
	struct shown x = {
		.backend = backend, .out = out, .scores = out->a->scores,
		.acc = calloc((size_t)l->q_heads, sizeof *x.acc),
		.count = calloc((size_t)l->kv_heads, sizeof *x.count),
	};
	enum ar_status st = x.acc && x.count ? shown_init(&x, c, method, err) : ar_nomem(err);

	if (!st)
		st = show_layers(&x, err);
	method_free(x.method);
	free(x.acc);
	free(x.count);
	return st;
}

/* Whether the files that a method names can be had, before anything is shown. */
static enum ar_status look_at(struct chunk *c, const char *method, struct ar_err *err)
{
	struct shown x = { 0 };
	enum ar_status st = shown_init(&x, c, method, err);

	if (!st)
		st = attn_engine_try(&x.env, err);
	method_free(x.method);
	return st;
}

/* ---- the command ---- */

/* Everything that can be told before the first selection: names, parameters, scores. */
static enum ar_status check_methods(char *const *name, size_t n, const struct args *a,
				    struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < n && !st; i++) {
		struct method *m;

		st = method_parse(&m, name[i], err);
		if (!st && a->scores && !m->selector->scores)
			st = ar_fail(err, AR_USAGE,
				     "method '%s': selector '%s' has no scores to show", name[i],
				     m->selector->name);
		method_free(m);
	}
	if (!st && a->scores && !a->json)
		st = ar_fail(err, AR_USAGE, "scores go into the JSON: add --json FILE");
	if (!st && a->scores && a->backend)
		st = ar_fail(err, AR_USAGE,
			     "scores are those of the references: use --backend cpu");
	return st;
}

/* All but the first selection, which nothing is shown before. */
static enum ar_status look_at_all(const struct args *a, char *const *method, size_t n,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < a->captures.n && !st; i++) {
		struct chunk c = { 0 };

		st = load_chunk(&c, a->captures.v[i], a, err);
		for (size_t k = i ? 0 : 1; k < n && !st; k++)
			st = look_at(&c, method[k], err);
		release_chunk(&c);
	}
	return st;
}

static enum ar_status select_all(const struct backend *b, const struct args *a,
				 char *const *method, size_t n, struct ar_err *err)
{
	struct outputs out = { .a = a };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < a->captures.n && !st; i++) {
		struct chunk c = { 0 };

		st = load_chunk(&c, a->captures.v[i], a, err);
		for (size_t k = 0; k < n && !st; k++) {
			progress("selections", i * n + k, a->captures.n * n);
			st = show(b, &c, method[k], &out, err);
		}
		release_chunk(&c);
	}
	progress_end();
	return close_outputs(&out, st, err);
}

static enum ar_status select_methods(const struct args *a, struct ar_err *err)
{
	const struct backend *b = backend_find(backend_names[a->backend]);
	char **method = NULL;
	size_t n = 0;
	enum ar_status st = AR_OK;

	if (!a->captures.n)
		return ar_fail(err, AR_USAGE, "no capture given; name one with --capture FILE");
	st = method_split(a->methods, &method, &n, err);
	if (!st)
		st = check_methods(method, n, a, err);
	if (!st && !b)
		st = ar_fail(err, AR_NODEV, "backend %s: this program was built without CUDA; take "
			     "--backend cpu", backend_names[a->backend]);
	if (!st)
		st = look_at_all(a, method, n, err);
	if (!st)
		st = select_all(b, a, method, n, err);
	for (size_t i = 0; i < n; i++)
		free(method[i]);
	free(method);
	return st;
}

static enum ar_status run(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = { { .title = "Options", .opts = opts, .base = &a }, { 0 } };
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc)
		st = ar_fail(err, AR_USAGE,
			     "'%s' is one operand too many: select takes options only", argv[0]);
	if (!st)
		st = select_methods(&a, err);
	opt_release(g);
	return st;
}

static void show_options(void (*show_group)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = { { .title = "Options", .opts = opts }, { 0 } };

	show_group(g, f);
}

const struct cmd cmd_select = {
	.name = "select",
	.usage = "--capture FILE [OPTION]...",
	.title = "show what methods select for one chunk of a capture",
	.run = run,
	.options = show_options,
};
