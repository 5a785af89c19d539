/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench: time attention kernels, methods, layers with a state and collectives on GPUs,
 * and compare them with their ceilings or with published figures. */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "kernels/select/plugin.h"
#include "src/bench/bench.h"
#include "src/bench/bench_device.h"
#include "src/cmd.h"

/* ---- options ---- */

static const char *const formats[] = { "table", "json", NULL };
static const char *const memories[] = { "device", "host", NULL };

#define OFF(member) offsetof(struct bench_args, member)
/* clang-format off */
static const struct opt every_opts[] = {
	{ .name = "device", .type = OPT_INT, .off = OFF(device), .arg = "N", .def = "0",
	  .max = 1023, .help = "index of the GPU to use" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = "also write the rows to FILE, as JSON lines" },
	{ .name = NULL }
};

static const struct opt repeat_opts[] = {
	{ .name = "repeat", .type = OPT_INT, .off = OFF(repeat), .arg = "N", .def = "30",
	  .min = 1, .max = BENCH_REPEATS, .help = "timed launches of each case" },
	{ .name = "seed", .type = OPT_INT, .off = OFF(seed), .arg = "N", .def = "1", .max = 1e15,
	  .help = "seed of random inputs and block lists" },
	{ .name = "format", .type = OPT_ENUM, .off = OFF(format), .arg = "NAME", .def = "table",
	  .choice = formats, .help = "format of standard output" },
	{ .name = "dry-run", .type = OPT_FLAG, .off = OFF(dry_run),
	  .help = "print the cases and their work without measuring; needs no GPU" },
	{ .name = NULL }
};

static const struct opt sample_opts[] = {
	{ .name = "sample", .type = OPT_INT, .off = OFF(sample), .arg = "N", .def = "12",
	  .max = 1e6,
	  .help = "output rows of each case to check against double precision; 0: none" },
	{ .name = NULL }
};

static const struct opt batch_opts[] = {
	{ .name = "batch", .type = OPT_STR, .off = OFF(batch), .arg = "LIST",
	  .help = "requests of a batch; 8 if not given" },
	{ .name = "chunk", .type = OPT_STR, .off = OFF(chunk), .arg = "LIST",
	  .help = "rows of a request, at most its context; 1024 if not given" },
	{ .name = NULL }
};

static const struct opt shape_opts[] = {
	{ .name = "context", .type = OPT_STR, .off = OFF(context), .arg = "LIST",
	  .help = "keys that a request's last row sees, its chunk included; 128K if not given" },
	{ .name = "q-heads", .type = OPT_INT, .off = OFF(q_heads), .arg = "N", .def = "16",
	  .min = 1, .max = 1024, .help = "query heads" },
	{ .name = "kv-heads", .type = OPT_INT, .off = OFF(kv_heads), .arg = "N", .def = "4",
	  .min = 1, .max = 1024, .help = "KV heads" },
	{ .name = "head-dim", .type = OPT_INT, .off = OFF(head_dim), .arg = "N", .def = "128",
	  .min = 64, .max = 256, .help = "head size, 64, 128 or 256" },
	{ .name = NULL }
};

static const struct opt block_opts[] = {
	{ .name = "block-size", .type = OPT_INT, .off = OFF(block_size), .arg = "N", .def = "128",
	  .min = 64, .max = 128, .help = "tokens of a block, 64 or 128" },
	{ .name = NULL }
};

static const struct opt part_opts[] = {
	{ .name = "decode", .type = OPT_STR, .off = OFF(decode), .arg = "LIST",
	  .def = "quest,budget=13107",
	  .help = "parts of a method for decodes, see 'attnreplay methods'; dense is always "
		  "measured too" },
	{ .name = NULL }
};

static const struct opt attention_opts[] = {
	{ .name = "what", .type = OPT_STR, .off = OFF(what), .arg = "LIST",
	  .def = "dense,table,blocksparse,copy,gather,decode,decode-table,select",
	  .help = "cases to measure" },
	{ .name = "density", .type = OPT_STR, .off = OFF(density), .arg = "LIST",
	  .def = "0.1,0.3",
	  .help = "shares of the blocks before the chunk that tables and lists keep, and of the "
		  "context that windows keep" },
	{ .name = "lists", .type = OPT_STR, .off = OFF(lists), .arg = "FILE",
	  .help = "take tables and lists from FILE, as 'attnreplay select --json' writes them, "
		  "in place of random ones" },
	{ .name = "cases", .type = OPT_STR, .off = OFF(cases), .arg = "FILE",
	  .help = "read the cases from FILE, one a line, instead of from options; -: standard "
		  "input" },
	{ .name = NULL }
};

static const struct opt method_opts[] = {
	{ .name = "method", .type = OPT_STR, .off = OFF(method), .arg = "LIST",
	  .def = "dense,compact-fp",
	  .help = "methods to measure, see 'attnreplay methods'; dense is always measured too" },
	{ .name = "left", .type = OPT_INT, .off = OFF(left), .arg = "N", .def = "0", .max = 1e9,
	  .help = "tokens of the prompt after the chunk; some methods keep everything near a "
		  "prompt's end" },
	{ .name = NULL }
};

static const struct opt input_opts[] = {
	{ .name = "capture", .type = OPT_STR, .off = OFF(capture), .arg = "FILE",
	  .help = "measure with captured Q, K and V instead of random ones" },
	{ .name = "layer", .type = OPT_STR, .off = OFF(layer), .arg = "LIST",
	  .help = "layers of the capture, by their numbers in the model; all if not given" },
	PLUGIN_OPT(OFF(selectors)),
	{ .name = NULL }
};

static const struct opt rank_opts[] = {
	{ .name = "tp", .type = OPT_INT, .off = OFF(tp), .arg = "N", .def = "0", .max = 1024,
	  .help = "tensor parallel size: measure the heads of one of N GPUs, or collectives "
		  "between N; 0: the size in the paper, or 1 without a paper" },
	{ .name = NULL }
};

static const struct opt collective_opts[] = {
	{ .name = "sizes", .type = OPT_STR, .off = OFF(sizes), .arg = "FROM:TO", .def = "1K:128M",
	  .help = "smallest and largest message in bytes, of all ranks; those between grow by a "
		  "half and a third" },
	{ .name = "out", .type = OPT_STR, .off = OFF(out), .arg = "FILE",
	  .help = "also write the table of collectives to FILE, for --comm of 'attnreplay run'" },
	{ .name = "devices", .type = OPT_STR, .off = OFF(devices), .arg = "LIST",
	  .help = "the GPU of each rank, as 0,1 or 4-7; if not given, those from --device on" },
	{ .name = "memory", .type = OPT_ENUM, .off = OFF(memory), .arg = "NAME", .def = "device",
	  .choice = memories,
	  .help = "where the messages lie; host: by the host's clock, with a library in "
		  "ATTNREPLAY_NCCL that reaches it" },
	{ .name = NULL }
};

static const struct opt model_opts[] = {
	{ .name = "model", .type = OPT_STR, .off = OFF(model), .arg = "NAME",
	  .help = "a preset, or a config.json: the model whose layer delta or ssm measures, "
		  "qwen3-next-80b-a3b or nemotron-3-nano-30b-a3b if not given, or that a table of "
		  "whole models runs" },
	{ .name = NULL }
};

static const struct opt paper_opts[] = {
	{ .name = "table", .type = OPT_STR, .off = OFF(table), .arg = "NAME",
	  .help = "published table to compare with; list: list the tables" },
	{ .name = "sample-chunks", .type = OPT_INT, .off = OFF(sample_chunks), .arg = "N",
	  .def = "8", .max = 1e6,
	  .help = "measure N chunks of each prefill and scale their times to all; 0: measure all" },
	{ .name = "match", .type = OPT_FLAG, .off = OFF(match),
	  .help = "tune the methods' thresholds until they leave out as many blocks as the paper "
		  "states" },
	{ .name = "use", .type = OPT_LIST, .off = OFF(use), .arg = "NAME=METHOD",
	  .help = "run METHOD for the table's method NAME, such as seer=seer:gate=FILE" },
	{ .name = NULL }
};
/* clang-format on */

/* ---- the command ---- */

/* The first argument is the mode.  Each group of options applies to some modes. */
enum {
	ATTENTION = 1,
	METHOD = 2,
	PAPER = 4,
	DELTA = 8,
	SSM = 16,
	DECODE = 32,
	KERNELS = 63,
	HOST = 64,
	COLLECTIVE = 128,
	ALL = 255
};

static const struct mode {
	const char *name;
	unsigned bit;
	enum ar_status (*run)(const struct bench_args *a, struct ar_err *err);
} modes[] = { { "attention", ATTENTION, bench_attention },
	      { "method", METHOD, bench_method },
	      { "decode", DECODE, bench_decode },
	      { "delta", DELTA, bench_delta },
	      { "ssm", SSM, bench_ssm },
	      { "paper", PAPER, bench_paper },
	      { "host", HOST, bench_host },
	      { "collective", COLLECTIVE, bench_collective },
	      { 0 } };

static const struct {
	const char *title;
	unsigned modes;
	const struct opt *opts;
} groups[] = {
	{ "Options", ALL, every_opts },
	{ "attention, method, decode, delta, ssm, paper, collective", KERNELS | COLLECTIVE,
	  repeat_opts },
	{ "attention, method, decode, delta, ssm, paper", KERNELS, sample_opts },
	{ "attention, method, decode, delta, ssm", KERNELS & ~PAPER, batch_opts },
	{ "attention, method, decode", ATTENTION | METHOD | DECODE, shape_opts },
	{ "attention, decode", ATTENTION | DECODE, block_opts },
	{ "decode", DECODE, part_opts },
	{ "attention", ATTENTION, attention_opts },
	{ "method", METHOD, method_opts },
	{ "method, paper", METHOD | PAPER, input_opts },
	{ "method, delta, ssm, paper, collective", METHOD | DELTA | SSM | PAPER | COLLECTIVE,
	  rank_opts },
	{ "collective", COLLECTIVE, collective_opts },
	{ "delta, ssm, paper", DELTA | SSM | PAPER, model_opts },
	{ "paper", PAPER, paper_opts },
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* Write the option groups of the modes in bits to `to`, [N_GROUPS + 1], ended by an empty group. */
static void choose_groups(unsigned bits, void *base, struct opt_group *to)
{
	for (int i = 0; i < N_GROUPS; i++)
		if (groups[i].modes & bits)
			*to++ = (struct opt_group){ .title = groups[i].title,
						    .opts = groups[i].opts,
						    .base = base };
	*to = (struct opt_group){ 0 };
}

static enum ar_status bench_main(int argc, char **argv, struct ar_err *err)
{
	struct opt_group g[N_GROUPS + 1];
	struct bench_args a = { 0 };
	const struct mode *m = modes;
	enum ar_status st;

	while (m->name && (!argc || strcmp(argv[0], m->name)))
		m++;
	if (!m->name)
		return ar_fail(err, AR_USAGE,
			       "%s%s%s; want attention, method, decode, delta, ssm, paper, host "
			       "or collective",
			       argc ? "unknown mode '" : "no mode given", argc ? argv[0] : "",
			       argc ? "'" : "");
	argc--, argv++;
	choose_groups(m->bit, &a, g);
	st = opt_init(g, err);
	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc)
		st = ar_fail(err, AR_USAGE, "unexpected operand '%s'", argv[0]);
	a.heads = opt_given(g, "q-heads") || opt_given(g, "kv-heads") || opt_given(g, "head-dim");
	a.density_given = opt_given(g, "density");
	if (!st)
		st = m->run(&a, err);
	opt_release(g);
	return st;
}

static void bench_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[N_GROUPS + 1];

	choose_groups(ALL, NULL, g);
	show(g, f);
}

const struct cmd cmd_bench = {
	.name = "bench",
	.usage = "attention [OPTION]...\n"
		 "method [OPTION]...\n"
		 "decode [OPTION]...\n"
		 "delta [OPTION]...\n"
		 "ssm [OPTION]...\n"
		 "paper --table NAME [OPTION]...\n"
		 "host [OPTION]...\n"
		 "collective --tp N [OPTION]...",
	.title = "measure kernels, methods, decodes, layers with a state, collectives and the host",
	.run = bench_main,
	.options = bench_show_options,
};
