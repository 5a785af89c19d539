/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay select: show the selections of methods for one chunk of a capture, and their
 * accuracy. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>

#include "kernels/select/plugin.h"
#include "src/cmd.h"
#include "src/model_opt.h"
#include "src/select/select_run.h"
#include "traces/capture/capture.h"

#define OFF(member) offsetof(struct select_args, member)
static const char *const pictures[] = { "auto", "ascii", "unicode", "none", NULL };
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "capture", .type = OPT_LIST, .off = OFF(captures), .arg = "FILE",
	  .help = "capture to select from, or random:SEED; repeat the option for more" },
	{ .name = "layer", .type = OPT_STR, .off = OFF(layers), .arg = "LIST",
	  .help = "layers of the model, such as 0,4-7; all captured ones if not given" },
	{ .name = "context", .type = OPT_INT, .off = OFF(context), .arg = "N", .def = "-1",
	  .min = -1, .max = CAPTURE_MAX_TOK,
	  .help = "tokens before the chunk; -1: the chunk is the last of the prompt" },
	{ .name = "chunk", .type = OPT_INT, .off = OFF(chunk), .arg = "N", .def = "1024",
	  .min = 1, .max = 1 << 20, .help = "tokens of the chunk" },
	{ .name = "prompt-tokens", .type = OPT_INT, .off = OFF(prompt), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_TOK,
	  .help = "tokens of the prompt; 0: those of the captured prompt, but at least up to the "
		  "chunk's end" },
	{ .name = "method", .type = OPT_STR, .off = OFF(methods), .arg = "LIST",
	  .def = "compact-fp", .help = "methods, separated by commas; see 'attnreplay methods'" },
	PLUGIN_OPT(OFF(selectors)),
	{ .name = "model", .type = OPT_STR, .off = OFF(model), .arg = "NAME",
	  .help = "model of the capture, a preset or a config.json, to take RoPE from if the "
		  "capture lacks it" },
	AS_MODEL_OPT(OFF(as_model)),
	{ .name = "tp", .type = OPT_INT, .off = OFF(tp), .arg = "N", .def = "1", .min = 1,
	  .max = 1024, .help = "tensor parallel size: the heads of one of N ranks" },
	{ .name = "backend", .type = OPT_ENUM, .off = OFF(backend), .arg = "NAME", .def = "cpu",
	  .choice = select_backends,
	  .help = "what computes: cpu, the reference code, or cuda, the GPU kernels" },
	{ .name = "head", .type = OPT_INT, .off = OFF(head), .arg = "H", .def = "-1", .min = -1,
	  .max = CAPTURE_MAX_HEADS,
	  .help = "show only this query head and its lists; -1: all heads and a mean picture" },
	{ .name = "picture", .type = OPT_ENUM, .off = OFF(picture), .arg = "HOW", .def = "auto",
	  .choice = pictures, .help = "how to draw the mask" },
	{ .name = "scores", .type = OPT_FLAG, .off = OFF(scores),
	  .help = "add the scores of blocks or tokens to the JSON, if the selector has them" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = "write all lists to FILE, as JSON" },
	{ .name = "csv", .type = OPT_STR, .off = OFF(csv), .arg = "FILE",
	  .help = "write a line for each capture, method and layer to FILE" },
	{ .name = "svg", .type = OPT_STR, .off = OFF(svg), .arg = "FILE",
	  .help = "draw the masks to FILE" },
	{ 0 }
};
/* clang-format on */

static enum ar_status select_main(int argc, char **argv, struct ar_err *err)
{
	struct select_args a = { 0 };
	struct opt_group g[] = { { .title = "Options", .opts = opts, .base = &a }, { 0 } };
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc)
		st = ar_fail(err, AR_USAGE,
			     "'%s' is one operand too many: select takes options only", argv[0]);
	if (!st)
		st = select_run(&a, err);
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
	.run = select_main,
	.options = show_options,
};
