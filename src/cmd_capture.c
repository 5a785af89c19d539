/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay capture: look at captures, make, pack, check and unpack them. */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "model/rope.h"
#include "src/capture_json.h"
#include "src/capture_make.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "traces/capture/capture.h"

struct args {
	char *json, *layers, *weights, *prompt, *output;
	int64_t tokens, level, frame_tokens, index;
};

/* clang-format off */
static const struct opt info_opts[] = {
	{ .name = "json", .type = OPT_STR, .off = offsetof(struct args, json), .arg = "FILE",
	  .help = JSON_FILE_HELP },
	{ 0 }
};

static const struct opt pack_opts[] = {
	{ .name = "layers", .type = OPT_STR, .off = offsetof(struct args, layers),
	  .arg = "LIST",
	  .help = "write only these layers of the model, such as 0,4-7" },
	{ .name = "tokens", .type = OPT_INT, .off = offsetof(struct args, tokens), .arg = "N",
	  .def = "0", .min = 0, .max = CAPTURE_MAX_TOK,
	  .help = "write only the first N tokens, 0: all" },
	{ .name = "level", .type = OPT_INT, .off = offsetof(struct args, level), .arg = "N",
	  .def = "9", .min = 1, .max = 22, .help = "zstd compression level" },
	{ .name = "frame-tokens", .type = OPT_INT, .off = offsetof(struct args, frame_tokens),
	  .arg = "N", .def = "1024", .min = 1, .max = CAPTURE_MAX_TOK,
	  .help = "tokens of a frame, the smallest unit that is read" },
	{ 0 }
};

static const struct opt make_opts[] = {
	{ .name = "weights", .type = OPT_STR, .off = offsetof(struct args, weights), .arg = "DIR",
	  .help = "folder with config.json and safetensors of the model to run" },
	{ .name = "prompt", .type = OPT_STR, .off = offsetof(struct args, prompt), .arg = "FILE",
	  .help = "token ids: on each line a JSON list, or an object that has one as 'prompt'; may "
		  "be compressed" },
	{ .name = "index", .type = OPT_INT, .off = offsetof(struct args, index), .arg = "N",
	  .def = "0", .min = 0, .max = INT_MAX, .help = "number of the prompt in FILE, from 0" },
	{ .name = "output", .type = OPT_STR, .off = offsetof(struct args, output), .arg = "FILE",
	  .letter = 'o', .help = "the .arc file to write" },
	{ 0 }
};
/* clang-format on */

/* Parse "0,4-7" into ascending numbers.  The caller frees *layer. */
static enum ar_status parse_layers(const char *text, int **layer, int *n, struct ar_err *err)
{
	int *v = calloc(CAPTURE_MAX_LAYER + 1, sizeof *v), count = 0;
	const char *p = text;

	*layer = NULL;
	if (!v)
		return ar_nomem(err);
	do {
		size_t len = strcspn(p, ",");
		uint64_t a, b;

		if (!num_range(p, len, &a, &b) || b > CAPTURE_MAX_LAYER ||
		    (count && (int)a <= v[count - 1])) {
			free(v);
			return ar_fail(err, AR_USAGE,
				       "layers '%s': want ascending numbers and ranges "
				       "up to %d, such as 0,4-7",
				       text, CAPTURE_MAX_LAYER);
		}
		for (; a <= b; a++)
			v[count++] = (int)a;
		p += len;
	} while (*p++ == ',');
	*layer = v;
	*n = count;
	return AR_OK;
}

static enum ar_status run_pack(struct capture *c, const char *out, const struct args *a,
			       struct ar_err *err)
{
	struct capture_pack p = { .n_tok = a->tokens,
				  .level = (int)a->level,
				  .frame_tok = a->frame_tokens };
	int *layer = NULL;
	enum ar_status st = a->layers ? parse_layers(a->layers, &layer, &p.n_layers, err) : AR_OK;

	p.layer = layer;
	if (!st)
		st = capture_pack(c, out, &p, err);
	free(layer);
	return st;
}

static enum ar_status run_unpack(struct capture *c, const char *out, const struct args *a,
				 struct ar_err *err)
{
	(void)a;
	return capture_unpack(c, out, err);
}

/* c: NULL, there is no input capture. */
static enum ar_status run_make(struct capture *c, const char *out, const struct args *a,
			       struct ar_err *err)
{
	struct capture_make m = { .weights = a->weights,
				  .prompt = a->prompt,
				  .index = a->index,
				  .tokens = a->tokens,
				  .level = (int)a->level,
				  .frame_tok = a->frame_tokens };
	const char *lacks = !a->weights ? "weights" : !a->prompt ? "prompt" : "output";
	int *layer = NULL;
	enum ar_status st;

	(void)c, (void)out;
	if (!a->weights || !a->prompt || !a->output)
		return ar_fail(err, AR_USAGE, "capture make needs --%s", lacks);
	st = a->layers ? parse_layers(a->layers, &layer, &m.n_layers, err) : AR_OK;
	m.layer = layer;
	if (!st)
		st = capture_make(&m, a->output, err);
	free(layer);
	return st;
}

static void print_layers(const struct capture_info *info)
{
	for (int i = 0, j; i < info->n_layers; i = j) {
		for (j = i + 1; j < info->n_layers && info->layer[j] == info->layer[j - 1] + 1; j++)
			;
		printf(j - i > 1 ? "%s%d-%d" : "%s%d", i ? "," : "", info->layer[i],
		       info->layer[j - 1]);
	}
}

static enum ar_status run_info(struct capture *c, const char *out, const struct args *a,
			       struct ar_err *err)
{
	const struct capture_info *info = capture_info(c);
	uint64_t values = (uint64_t)info->n_tok * (uint64_t)info->head_dim *
			  (uint64_t)(info->q_heads + 2 * info->kv_heads);
	uint64_t bytes = values * sizeof(bf16_t) * (uint64_t)info->n_layers;
	enum ar_status st = AR_OK;

	(void)out;
	if (a->json)
		st = json_file_write(a->json, capture_json(info, bytes), err);
	if (st || json_file_alone(a->json))
		return st;
	printf("container     %s\nmodel         ", info->container);
	text_put(*info->model ? info->model : "unknown", stdout);
	printf("\nlayer numbers ");
	print_layers(info);
	printf("\nq heads       %d\nkv heads      %d\nhead dim      %d\ntokens        %" PRId64
	       "\nprompt        %" PRId64 "\nrope          %s",
	       info->q_heads, info->kv_heads, info->head_dim, info->n_tok, info->n_prompt,
	       info->rope_applied ? "applied" : "not applied");
	if (info->rope.theta > 0)
		printf(", theta %.15g", info->rope.theta);
	if (info->rope.factor > 0)
		printf(", %s factor %.15g", rope_type_name(&info->rope), info->rope.factor);
	if (info->rope.share > 0)
		printf(", on %.15g of a head", info->rope.share);
	if (info->frame_tok)
		printf("\nframe tokens  %" PRId64, info->frame_tok);
	if (*info->sha256)
		printf("\nchecksum      %s", info->sha256);
	printf("\ntensor bytes  %" PRIu64 "\nfile bytes    %" PRIu64 "\n", bytes, info->file_bytes);
	return AR_OK;
}

/* Read everything, frame by frame. */
static enum ar_status run_verify(struct capture *c, const char *out, const struct args *a,
				 struct ar_err *err)
{
	const struct capture_info *info = capture_info(c);
	const int64_t step = info->frame_tok && info->frame_tok < info->n_tok ? info->frame_tok :
			     info->frame_tok || info->n_tok < 1024	      ? info->n_tok :
										1024;
	const unsigned long total = (unsigned long)info->n_layers * 3;
	bf16_t *buf = calloc((size_t)info->q_heads * (size_t)info->head_dim * (size_t)step,
			     sizeof *buf);
	enum ar_status st = buf ? AR_OK : ar_nomem(err);

	(void)out, (void)a;
	for (unsigned long k = 0; !st && k < total; k++) {
		progress("tensors", k, total);
		for (int64_t at = 0; !st && at < info->n_tok; at += step) {
			int64_t n = info->n_tok - at < step ? info->n_tok - at : step;

			st = capture_read_finite(c, (int)(k / 3), (enum capture_tensor)(k % 3), at,
						 n, buf, err);
			if (!st && ar_interrupted())
				st = ar_fail(err, AR_INTERRUPTED, "interrupted");
		}
	}
	progress_end();
	free(buf);
	if (!st) {
		text_put(info->name, stdout);
		printf(": %lu tensors of %" PRId64 " tokens are sound\n", total, info->n_tok);
	}
	return st;
}

enum { GROUP_INFO, GROUP_PACK, GROUP_MAKE, GROUPS };

static const struct verb {
	const char *name;
	int operands;
	int groups; /* bits of the option groups that it takes */
	enum ar_status (*run)(struct capture *c, const char *out, const struct args *a,
			      struct ar_err *err);
} verbs[] = { { "info", 1, 1 << GROUP_INFO, run_info },
	      { "make", 0, 1 << GROUP_PACK | 1 << GROUP_MAKE, run_make },
	      { "pack", 2, 1 << GROUP_PACK, run_pack },
	      { "verify", 1, 0, run_verify },
	      { "unpack", 2, 0, run_unpack },
	      { 0 } };

static const struct verb *find_verb(const char *name)
{
	const struct verb *v = verbs;

	while (v->name && strcmp(v->name, name) != 0)
		v++;
	return v->name ? v : NULL;
}

static enum ar_status dispatch_verb(const struct opt_group *g, int argc, char **argv,
				    const struct args *a, struct ar_err *err)
{
	const struct verb *v = argc ? find_verb(argv[0]) : NULL;
	struct capture *c = NULL;
	enum ar_status st = AR_OK;

	if (!v)
		return ar_fail(err, AR_USAGE, "%s%s%s; want info, make, pack, verify or unpack",
			       argc ? "unknown action '" : "no action given", argc ? argv[0] : "",
			       argc ? "'" : "");
	if (argc - 1 != v->operands)
		return ar_fail(err, AR_USAGE, "capture %s takes %d file%s, not %d", v->name,
			       v->operands, v->operands != 1 ? "s" : "", argc - 1);
	for (int i = 0; i < GROUPS; i++)
		if (g[i].given && !(v->groups >> i & 1))
			return ar_fail(err, AR_USAGE, "capture %s takes no %s; leave them out",
				       v->name, g[i].title);
	if (v->operands)
		st = capture_open(&c, argv[1], err);
	if (st)
		return st;
	st = v->run(c, v->operands > 1 ? argv[2] : NULL, a, err);
	capture_close(c);
	return st;
}

static enum ar_status capture_main(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = {
		{ .title = "options of info", .opts = info_opts, .base = &a },
		{ .title = "options of make and pack", .opts = pack_opts, .base = &a },
		{ .title = "options of make", .opts = make_opts, .base = &a },
		{ 0 }
	};
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st)
		st = dispatch_verb(g, argc, argv, &a, err);
	opt_release(g);
	return st;
}

static void capture_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = { { .title = "Options of info", .opts = info_opts },
				       { .title = "Options of make and pack", .opts = pack_opts },
				       { .title = "Options of make", .opts = make_opts },
				       { 0 } };

	show(g, f);
}

const struct cmd cmd_capture = {
	.name = "capture",
	.usage = "info [OPTION]... FILE\n"
		 "make [OPTION]... --weights DIR --prompt IDS -o OUT\n"
		 "pack [OPTION]... IN OUT.arc\n"
		 "verify FILE\n"
		 "unpack IN.arc OUT.safetensors",
	.title = "look at captures of Q, K and V, make, pack, check and unpack them",
	.run = capture_main,
	.options = capture_show_options,
};
