/* SPDX-License-Identifier: Apache-2.0 */
/* Figures are as printed in the papers; nothing else in the program repeats them. */
#include "config.h"
#include "src/bench/bench_papers.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const struct paper_quantity_info paper_quantities[] = {
#define X(id, name, unit, text) { name, unit, text },
	PAPER_QUANTITY_MAP(X)
#undef X
};

enum { K = 1024 };
/* clang-format off */
#define NONE { NAN, NAN, NAN, NAN, NAN }
/* clang-format on */
#define COLUMNS(list) .column = (list), .n_column = sizeof(list) / sizeof *(list)
#define LLAMA .q_heads = 32, .kv_heads = 8, .head_dim = 128, .n_layers = 32
#define NEXT .q_heads = 16, .kv_heads = 2, .head_dim = 256, .n_layers = 48
#define GEMMA .q_heads = 16, .kv_heads = 8, .head_dim = 256, .n_layers = 48
#define QWEN .q_heads = 32, .kv_heads = 4, .head_dim = 128, .n_layers = 48

static const char *const modules =
	"the paper times whole attention modules with their projections and gaps, here it is the "
	"kernels of the core; compare speedups";
static const char *const modules_rtx =
	"measured on RTX PRO 6000, and whole attention modules with their projections and gaps, "
	"here it is the kernels of the core; compare speedups";

/* ---- CompactAttention ---- */

#define QWEN_FP(alpha) "select=flashprefill,alpha=" alpha
static const struct paper_column ca2_columns[] = { { 1, 1 * K, 32 * K },
						   { 1, 1 * K, 64 * K },
						   { 1, 1 * K, 128 * K } };
static const struct paper_row ca2_rows[] = { { "Pre-union",
					       QWEN_FP("0.12") "/union=sub-group/exec=paged",
					       PAPER_SPARSITY,
					       { 83.76, 90.02, 93.88 } },
					     { "Q-block union",
					       QWEN_FP("0.12") "/union=sub-group/exec=paged",
					       PAPER_QUNION,
					       { 67.25, 78.74, 86.63 } },
					     { "Sub-KV-group union",
					       QWEN_FP("0.12") "/union=sub-group/exec=paged",
					       PAPER_GROUP,
					       { 42.15, 57.82, 70.72 } },
					     { "KV-group union",
					       QWEN_FP("0.12") "/union=group/exec=paged",
					       PAPER_GROUP,
					       { 29.33, 45.33, 59.88 } },
					     { 0 } };

static const struct paper_column ca3_columns[] = { { 4, 512, 8 * K },
						   { 4, 512, 16 * K },
						   { 4, 512, 32 * K },
						   { 4, 512, 64 * K },
						   { 4, 512, 128 * K } };
static const struct paper_row ca3_rows[] = {
	{ "Dense", "dense", PAPER_CALL, { 423.1, 1224.0, 5213.3, 17838.8, 65971.1 } },
	{ "QUOKA", "quoka", PAPER_CALL, { 674.0, 1599.5, 5196.5, 16325.4, 56475.3 } },
	{ "XAttention", "xattention", PAPER_CALL, { 1095.5, 2700.5, 7770.5, 24819.2, 82617.0 } },
	{ "SeerAttention", "seer", PAPER_CALL, { 1012.3, 2548.7, 6171.8, 17078.2, 49839.8 } },
	{ "CompactAttention-SA",
	  "compact-sa",
	  PAPER_CALL,
	  { 1303.0, 2675.7, 5584.4, 13823.5, 32846.0 } },
	{ "FlashPrefill", "flashprefill", PAPER_CALL, { 496.6, 1356.2, 4547.7, 14381.8, 43750.5 } },
	{ "CompactAttention-FP",
	  "compact-fp",
	  PAPER_CALL,
	  { 596.0, 1393.6, 3474.8, 8945.9, 24055.4 } },
	{ 0 }
};

static const struct paper_column ca4_columns[] = { { 8, 1 * K, 8 * K },
						   { 8, 1 * K, 16 * K },
						   { 8, 1 * K, 32 * K },
						   { 8, 1 * K, 64 * K },
						   { 8, 1 * K, 128 * K } };
static const struct paper_row ca4_rows[] = {
	{ "Dense", "dense", PAPER_CALL, { 429.8, 1272.9, 4173.8, 14810.9, 55678.4 } },
	{ "QUOKA", "quoka", PAPER_CALL, { 582.3, 1516.6, 4629.7, 15012.2, 51292.4 } },
	{ "XAttention", "xattention", PAPER_CALL, { 923.9, 2600.1, 7729.7, 24777.8, 86821.4 } },
	{ "SeerAttention", "seer", PAPER_CALL, { 1002.5, 3073.4, 9478.1, 27632.5, 85852.0 } },
	{ "CompactAttention-SA",
	  "compact-sa",
	  PAPER_CALL,
	  { 780.2, 1775.7, 4393.8, 10895.6, 29468.1 } },
	{ "FlashPrefill", "flashprefill", PAPER_CALL, { 464.5, 1262.5, 3438.8, 9489.7, 24886.5 } },
	{ "CompactAttention-FP",
	  "compact-fp",
	  PAPER_CALL,
	  { 531.5, 1274.7, 3292.0, 8292.0, 20489.7 } },
	{ 0 }
};

static const struct paper_column ca_calls_columns[] = { { 8, 1 * K, 128 * K } };

static const struct paper_column ca5_columns[] = { { 8, 512, 128 * K },
						   { 8, 1 * K, 128 * K },
						   { 8, 2 * K, 128 * K } };
static const struct paper_row ca5_rows[] = {
	{ "Dense", "dense", PAPER_CALL, { 72514.3, 55678.4, 47447.3 } },
	{ "CompactAttention-FP", "compact-fp", PAPER_CALL, { 25441.7, 20489.7, 19921.0 } },
	{ 0 }
};

static const struct paper_column ca6_columns[] = {
	{ 4, 1 * K, 32 * K }, { 4, 1 * K, 64 * K }, { 4, 1 * K, 128 * K }, { 4, 1 * K, 256 * K }
};
static const struct paper_row ca6_rows[] = {
	{ "QUOKA", "quoka", PAPER_SPEEDUP, { 0.81, 0.91, 1.04, 1.15 } },
	{ "FlashPrefill", "flashprefill:alpha=0.02", PAPER_SPEEDUP, { 0.77, 0.85, 1.05, 0.95 } },
	{ "CompactAttention-FP",
	  QWEN_FP("0.12") "/union=sub-group/exec=paged",
	  PAPER_SPEEDUP,
	  { 0.83, 1.07, 1.56, 1.64 } },
	{ 0 }
};

static const struct paper_column ca9_columns[] = { { 1, 512, 128 * K },
						   { 2, 512, 128 * K },
						   { 4, 512, 128 * K },
						   { 8, 512, 128 * K },
						   { 16, 512, 128 * K } };
static const struct paper_row ca9_rows[] = {
	{ "CA-FP (Copy)", "compact-fp-copy", PAPER_METADATA, { 0.20, 0.13, 0.13, 0.13, 0.16 } },
	{ "CA-FP (Copy)", "compact-fp-copy", PAPER_COPY, { 0.30, 0.52, 1.01, 1.99, 3.97 } },
	{ "CA-FP (Copy)", "compact-fp-copy", PAPER_ATTEND, { 1.65, 2.72, 5.13, 9.59, 21.26 } },
	{ "CA-FP", "compact-fp", PAPER_METADATA, { 0.29, 0.24, 0.31, 0.47, 0.89 } },
	{ "CA-FP", "compact-fp", PAPER_ATTEND, { 1.54, 2.96, 4.48, 8.33, 15.73 } },
	{ 0 }
};

#define RANDOM(block) "select=density,density=0.1,block=" block "/union=none/exec=blocksparse"
static const struct paper_column ca1b_columns[] = { { 1, 64 * K, 64 * K }, { 1, 1 * K, 64 * K } };
static const struct paper_row ca1b_rows[] = {
	{ "XAttention", RANDOM("128"), PAPER_KERNEL, { 8.1, 4.5 } },
	{ "SeerAttention", RANDOM("64"), PAPER_KERNEL, { 5.8, 3.0 } },
	{ "FlashPrefill", RANDOM("128"), PAPER_KERNEL, { 9.3, 7.0 } },
	{ "XAttention, own mask", "xattention", PAPER_KERNEL, { 8.1, 4.5 } },
	{ "SeerAttention, own mask", "seer", PAPER_KERNEL, { 5.8, 3.0 } },
	{ "FlashPrefill, own mask", "flashprefill", PAPER_KERNEL, { 9.3, 7.0 } },
	{ 0 }
};

static const struct paper_row ca1c_rows[] = {
	{ "XAttention", "xattention", PAPER_SELECT, { 16.4, 65.4 } },
	{ "SeerAttention", "seer", PAPER_SELECT, { 2.9, 39.5 } },
	{ "FlashPrefill", "flashprefill", PAPER_SELECT, { 2.7, 22.5 } },
	{ 0 }
};

static const struct paper_column ca7a_columns[] = { { 1, 1 * K, 128 * K } };
static const struct paper_row ca7a_rows[] = {
	{ "FlashPrefill", "flashprefill", PAPER_SPARSITY, { 69.8 } },
	{ "CA-FP, mask", "compact-fp", PAPER_SPARSITY, { 89.8 } },
	{ "CA-FP, both unions", "compact-fp", PAPER_GROUP, { 70.2 } },
	{ 0 }
};

static const struct paper_column ca7c_columns[] = { { 4, 512, 128 * K } };
static const struct paper_row ca7c_rows[] = {
	{ "Block-sparse", "union-bs", PAPER_METADATA, NONE },
	{ "Block-sparse", "union-bs", PAPER_ATTEND, NONE },
	{ "CA-FP (Copy)", "compact-fp-copy", PAPER_METADATA, NONE },
	{ "CA-FP (Copy)", "compact-fp-copy", PAPER_COPY, NONE },
	{ "CA-FP (Copy)", "compact-fp-copy", PAPER_ATTEND, NONE },
	{ "CA-FP", "compact-fp", PAPER_METADATA, NONE },
	{ "CA-FP", "compact-fp", PAPER_ATTEND, NONE },
	{ 0 }
};

/* ---- BFLA ---- */

/* Two rows of one configuration.  The paper's n counts blocks of 32 tokens, local counts tokens. */
#define BFLA(label, params, density, build) \
	{ label, "bfla:" params, PAPER_DENSITY, { density } }, \
	{ \
		label, "bfla:" params, PAPER_SELECT, \
		{ \
			build \
		} \
	}

static const struct paper_column bfla5_columns[] = { { 1, 16 * K, 16 * K } };
static const struct paper_row bfla5_rows[] = {
	BFLA("b256 g64 .95 n8", "mass=0.95", 8.75, 1.65),
	BFLA("b256 g64 .999 n8", "mass=0.999", 8.85, 1.70),
	BFLA("b256 g64 .95 n8 eta16", "mass=0.95,stride=16", 14.40, 1.78),
	BFLA("b256 g64 .95 n16 eta16", "mass=0.95,local=512,stride=16", 16.87, 1.88),
	BFLA("b256 g64 .98 n8 eta16", "mass=0.98,stride=16", 14.62, 1.94),
	BFLA("b256 g64 .99 n8 eta16", "stride=16", 14.65, 1.76),
	BFLA("b128 g64 rho.1 eta16", "block=128,random=0.1,stride=16", 20.62, 2.10),
	BFLA("b256 g64 rho.1 eta16", "random=0.1,stride=16", 29.57, 2.08),
	BFLA("b256 g256 rho.1 eta16", "group=256,random=0.1,stride=16", 19.85, 1.72),
	BFLA("b512 g64 rho.1 eta16", "block=512,random=0.1,stride=16", 28.00, 2.27),
	BFLA("b512 g128 rho.1 eta16", "block=512,group=128,random=0.1,stride=16", 27.32, 2.06),
	BFLA("b1024 g64 rho.1 eta16", "block=1024,random=0.1,stride=16", 43.37, 2.06),
	{ "XAttention", "xattention", PAPER_DENSITY, { 13.41 } },
	{ "XAttention", "xattention", PAPER_SELECT, { 7.82 } },
	{ 0 }
};

/* ---- UniPrefill: whole models ---- */

#define WHOLE(batch, context) \
	{ \
		batch, context, context \
	}
#define UP_COLUMNS(batch) \
	WHOLE(batch, 4 * K), WHOLE(batch, 8 * K), WHOLE(batch, 16 * K), WHOLE(batch, 32 * K)
#define UP_LONG(batch) WHOLE(batch, 64 * K), WHOLE(batch, 128 * K)

static const struct paper_column up_lone[] = { WHOLE(1, 128 * K) };
static const struct paper_column up_batches[] = { UP_COLUMNS(1), UP_LONG(1),	 UP_COLUMNS(4),
						  UP_LONG(4),	 UP_COLUMNS(16), UP_LONG(16),
						  UP_COLUMNS(64) };

#define PREFILL(label, method, ...) \
	{ \
		label, method, PAPER_PREFILL, \
		{ \
			__VA_ARGS__ \
		} \
	}
#define KEPT(label, method) \
	{ \
		label, method, PAPER_KEPT, \
		{ \
			NAN \
		} \
	}

/* Layers for 48-layer models: the ones for 32 layers, in proportion, with full attention. */
#define GEMMA_UP "uniprefill:p=0.98,min-tokens=1024"
#define NEXT_LAZY "lazyllm:layers=19:0.3+31:0.5+43:0.7"
#define GEMMA_LAZY "lazyllm:layers=17:0.3+29:0.5+41:0.7"
#define NEXT_SLIM "sliminfer:layers=15:0.5+31:0.25"
#define GEMMA_SLIM "sliminfer:layers=17:0.5+29:0.25"

static const struct paper_row up1_llama[] = { PREFILL("MInference", "minference", 1.34),
					      PREFILL("FlexPrefill", "flexprefill", 1.46),
					      PREFILL("XAttention", "xattention", 1.38),
					      PREFILL("ProxyAttn", "proxyattn", 1.79),
					      PREFILL("LazyLLM", "lazyllm", 2.51),
					      PREFILL("SlimInfer", "sliminfer", NAN),
					      PREFILL("UniPrefill", "uniprefill", 2.26),
					      KEPT("UniPrefill", "uniprefill"),
					      { 0 } };
static const struct paper_row up1_next[] = { PREFILL("MInference", "minference", 1.05),
					     PREFILL("FlexPrefill", "flexprefill", 1.08),
					     PREFILL("XAttention", "xattention", 1.05),
					     PREFILL("ProxyAttn", "proxyattn", 1.11),
					     PREFILL("LazyLLM", NEXT_LAZY, 1.74),
					     PREFILL("SlimInfer", NEXT_SLIM, NAN),
					     PREFILL("UniPrefill", "uniprefill", 1.68),
					     KEPT("UniPrefill", "uniprefill"),
					     { 0 } };
static const struct paper_row up1_gemma[] = { PREFILL("MInference", "minference", 1.03),
					      PREFILL("FlexPrefill", "flexprefill", 1.04),
					      PREFILL("XAttention", "xattention", 1.02),
					      PREFILL("ProxyAttn", "proxyattn", 1.06),
					      PREFILL("LazyLLM", GEMMA_LAZY, 1.64),
					      PREFILL("SlimInfer", GEMMA_SLIM, NAN),
					      PREFILL("UniPrefill", GEMMA_UP, 1.49),
					      KEPT("UniPrefill", GEMMA_UP),
					      { 0 } };

/* Computed from the printed throughputs. */
static const struct paper_row up2_llama[] = {
	PREFILL("UniPrefill", "uniprefill", 1.04, 1.12, 1.20, 1.54, 1.81, 2.08, 1.06, 1.22, 1.35,
		1.59, 1.82, 2.08, 1.19, 1.33, 1.38, 1.64, 1.87, 2.09, 1.24, 1.35, 1.39, 1.65),
	{ 0 }
};
static const struct paper_row up2_next[] = {
	PREFILL("UniPrefill", "uniprefill", 0.95, 0.96, 1.03, 1.21, 1.26, 1.48, 0.97, 1.01, 1.16,
		1.31, 1.37, 1.57, 1.02, 1.20, 1.22, 1.38, 1.39, 1.68, 1.13, 1.26, 1.26, 1.43),
	{ 0 }
};
static const struct paper_row up2_gemma[] = {
	PREFILL("UniPrefill", GEMMA_UP, 0.98, 1.09, 1.19, 1.25, 1.22, 1.42, 1.14, 1.29, 1.22, 1.26,
		1.30, 1.41, 1.17, 1.24, 1.23, 1.27, 1.31, 1.42, 1.19, 1.23, 1.22, 1.27),
	{ 0 }
};

/* Blocks, and scoring queries, of 32 to 512 tokens. */
#define UP_SWEEP(name, method, key, a, b, c) \
	PREFILL(name " " #a, method key "=" #a, NAN), KEPT(name " " #a, method key "=" #a), \
		PREFILL(name " " #b, method key "=" #b, NAN), \
		KEPT(name " " #b, method key "=" #b), \
		PREFILL(name " " #c, method key "=" #c, NAN), KEPT(name " " #c, method key "=" #c)

static const struct paper_row up3_llama[] = { PREFILL("block 32", "uniprefill:block=32", 2.21),
					      KEPT("block 32", "uniprefill:block=32"),
					      PREFILL("block 64", "uniprefill:block=64", NAN),
					      KEPT("block 64", "uniprefill:block=64"),
					      PREFILL("block 128", "uniprefill:block=128", NAN),
					      KEPT("block 128", "uniprefill:block=128"),
					      { 0 } };
static const struct paper_row up3_next[] = { UP_SWEEP("block", "uniprefill:", "block", 32, 64, 128),
					     { 0 } };
static const struct paper_row up3_gemma[] = { UP_SWEEP("block", GEMMA_UP ",", "block", 32, 64, 128),
					      { 0 } };
static const struct paper_row up4_llama[] = {
	UP_SWEEP("last-q", "uniprefill:", "last-q", 32, 128, 512), { 0 }
};
static const struct paper_row up4_gemma[] = {
	UP_SWEEP("last-q", GEMMA_UP ",", "last-q", 32, 128, 512), { 0 }
};

static const char *const ranks =
	"machine, chunk budget and, of other methods, settings are not stated; one rank of eight "
	"runs here, without all-reduces, which the paper's times have; what is kept depends on the "
	"input";

/* ---- BFLA: whole models ---- */

static const struct paper_column bfla_lengths[] = {
	{ 1, 2 * K, 2 * K },  { 1, 4 * K, 4 * K },  { 1, 8 * K, 8 * K },   { 1, 8 * K, 16 * K },
	{ 1, 8 * K, 32 * K }, { 1, 8 * K, 64 * K }, { 1, 8 * K, 128 * K },
};
static const struct paper_row bfla1_rows[] = {
	PREFILL("BFLA", "bfla", 0.952, 1.035, 1.081, 1.166, 1.329, 1.656, 2.274), { 0 }
};
static const struct paper_row bfla2_rows[] = {
	PREFILL("BFLA", "bfla", 0.969, 1.046, 1.073, 1.192, 1.379, 1.789, 2.501), { 0 }
};

static const char *const unverified =
	"the model's configuration is not part of this program: give a config.json; parallelism "
	"and chunk budget are not stated, here it is one GPU and 8192 tokens; the paper's dense "
	"attention is slower than ours";

/* ---- all ---- */

/* The budget of quoka is a quarter of the tokens before the chunk. */
static const struct paper_method methods[] = {
	{ "compact-fp-copy", 0, "compact-fp", NULL, NULL },
	{ "compact-sa", 0, NULL, "compact-sa:gate=mean,dense-tail=1", "untrained gate" },
	{ "quoka", 75, NULL, NULL, NULL },
	{ "seer", 0, NULL, "seer:gate=mean", "untrained gate" },
	{ "union-bs", 0, "compact-fp", NULL, NULL },
	{ "xattention", 0, NULL, "xattention", "one threshold" },
	{ 0 }
};

/* clang-format off */
const struct paper_table paper_tables[] = {
	{ "ca-2", "sparsity after each union, Qwen3-30B-A3B",
	  "CompactAttention (2026), Table 2, RULER samples", NULL,
	  QWEN, .tp = 1, COLUMNS(ca2_columns), .row = ca2_rows },
	{ "ca-3", "attention latency by context, LLaMA-3.1-8B, chunk 512",
	  "CompactAttention (2026), Table 3, RTX PRO 6000, TP 2, batch 4", modules_rtx,
	  LLAMA, .tp = 2, COLUMNS(ca3_columns), .row = ca3_rows },
	{ "ca-4", "attention latency by context, LLaMA-3.1-8B, chunk 1024",
	  "CompactAttention (2026), Table 4, H200 SXM, TP 2, batch 8", modules,
	  LLAMA, .tp = 2, COLUMNS(ca4_columns), .row = ca4_rows },
	{ "ca-calls", "one call of attention against the paper's, LLaMA-3.1-8B, 128K, chunk 1024",
	  "CompactAttention (2026), Table 4, H200 SXM, TP 2, batch 8, over chunks and layers",
	  modules, LLAMA, .tp = 2, COLUMNS(ca_calls_columns), .first = 4, .row = ca4_rows,
	  .goal = 2 },
	{ "ca-5", "attention latency by chunk size, LLaMA-3.1-8B, 128K",
	  "CompactAttention (2026), Table 5, H200 SXM, TP 2, batch 8", modules,
	  LLAMA, .tp = 2, COLUMNS(ca5_columns), .row = ca5_rows },
	{ "ca-6", "attention speedup by context, Qwen3-30B-A3B, chunk 1024",
	  "CompactAttention (2026), Table 6, H200 SXM, TP 2, batch 4",
	  "the paper's are of whole attention modules, and its FlashPrefill copies K and V",
	  QWEN, .tp = 2, COLUMNS(ca6_columns), .row = ca6_rows },
	{ "ca-9", "copies against tables by batch size",
	  "CompactAttention (2026), Table 9",
	  "machine, heads and chunk are not stated and taken from Figure 7(c); the magnitudes fit "
	  "whole heads, and metadata includes the planning of a library",
	  LLAMA, .tp = 1, .last = true, COLUMNS(ca9_columns), .row = ca9_rows },
	{ "ca-1b", "block-sparse kernels at 90 % sparsity, 64K, one-shot and chunk 1024",
	  "CompactAttention (2026), Figure 1(b)",
	  "masks, batch and machine are not stated: random ones here, and the selectors' own, of "
	  "that sparsity under --match only; one kernel here runs what three libraries do",
	  LLAMA, .tp = 1, .last = true, COLUMNS(ca1b_columns), .row = ca1b_rows, .sparsity = 90 },
	{ "ca-1c", "pattern search of a layer, 64K, one-shot and 64 chunks",
	  "CompactAttention (2026), Figure 1(c)",
	  "the paper's are bound by launches; batch and machine are not stated",
	  LLAMA, .tp = 1, COLUMNS(ca1b_columns), .row = ca1c_rows },
	{ "ca-7a", "sparsity at the operating point, LLaMA-3.1-8B, 128K",
	  "CompactAttention (2026), Figure 7(a), RULER", NULL,
	  LLAMA, .tp = 1, COLUMNS(ca7a_columns), .row = ca7a_rows },
	{ "ca-7c", "three executors under the same unioned mask, 128K, chunk 512",
	  "CompactAttention (2026), Figure 7(c), RTX PRO 6000, batch 4",
	  "bars without numbers; block-sparse runs a query head at a time: with the heads of a "
	  "group packed it is what CA-FP runs, and so has no row of its own",
	  LLAMA, .tp = 2, .last = true, COLUMNS(ca7c_columns), .row = ca7c_rows },
	{ "bfla-5", "density and mask building of BFLA's configurations, LLaMA-3.1-8B",
	  "BFLA (2026), Table 5, A100, averages over LongBench prompts",
	  "prompt lengths, chunks and XAttention's thresholds are not stated; here it is one "
	  "prompt in one chunk of 16K, and a threshold of 0.9",
	  LLAMA, .tp = 1, COLUMNS(bfla5_columns), .row = bfla5_rows },
	{ "up-1-llama", "TTFT of a lone request at 128K, LLaMA-3.1-8B",
	  "UniPrefill (2026), Table 1, vLLM 0.16.0, TP 8", ranks,
	  .model = "llama-3.1-8b", LLAMA, .tp = 8, COLUMNS(up_lone), .row = up1_llama },
	{ "up-1-next", "TTFT of a lone request at 128K, Qwen3-Next-80B-A3B",
	  "UniPrefill (2026), Table 1, vLLM 0.16.0, TP 8", ranks,
	  .model = "qwen3-next-80b-a3b", NEXT, .tp = 8, COLUMNS(up_lone), .row = up1_next },
	{ "up-1-gemma", "TTFT of a lone request at 128K, Gemma-3-12B",
	  "UniPrefill (2026), Table 1, vLLM 0.16.0, TP 8", ranks,
	  .model = "gemma-3-12b", GEMMA, .tp = 8, COLUMNS(up_lone), .row = up1_gemma },
	{ "up-2-llama", "prefill throughput by batch and context, LLaMA-3.1-8B",
	  "UniPrefill (2026), Table 2, vLLM 0.16.0, TP 8", ranks,
	  .model = "llama-3.1-8b", LLAMA, .tp = 8, COLUMNS(up_batches), .row = up2_llama },
	{ "up-2-next", "prefill throughput by batch and context, Qwen3-Next-80B-A3B",
	  "UniPrefill (2026), Table 2, vLLM 0.16.0, TP 8", ranks,
	  .model = "qwen3-next-80b-a3b", NEXT, .tp = 8, COLUMNS(up_batches), .row = up2_next },
	{ "up-2-gemma", "prefill throughput by batch and context, Gemma-3-12B",
	  "UniPrefill (2026), Table 2, vLLM 0.16.0, TP 8", ranks,
	  .model = "gemma-3-12b", GEMMA, .tp = 8, COLUMNS(up_batches), .row = up2_gemma },
	{ "up-3-llama", "block sizes at 128K, LLaMA-3.1-8B",
	  "UniPrefill (2026), Table 3, vLLM 0.16.0, TP 8", ranks,
	  .model = "llama-3.1-8b", LLAMA, .tp = 8, COLUMNS(up_lone), .row = up3_llama },
	{ "up-3-next", "block sizes at 128K, Qwen3-Next-80B-A3B",
	  "UniPrefill (2026), Table 3, vLLM 0.16.0, TP 8", ranks,
	  .model = "qwen3-next-80b-a3b", NEXT, .tp = 8, COLUMNS(up_lone), .row = up3_next },
	{ "up-3-gemma", "block sizes at 128K, Gemma-3-12B",
	  "UniPrefill (2026), Table 3, vLLM 0.16.0, TP 8", ranks,
	  .model = "gemma-3-12b", GEMMA, .tp = 8, COLUMNS(up_lone), .row = up3_gemma },
	{ "up-4-llama", "scoring queries at 128K, LLaMA-3.1-8B",
	  "UniPrefill (2026), Table 4, vLLM 0.16.0, TP 8", ranks,
	  .model = "llama-3.1-8b", LLAMA, .tp = 8, COLUMNS(up_lone), .row = up4_llama },
	{ "up-4-next", "scoring queries at 128K, Qwen3-Next-80B-A3B",
	  "UniPrefill (2026), Table 4, vLLM 0.16.0, TP 8", ranks,
	  .model = "qwen3-next-80b-a3b", NEXT, .tp = 8, COLUMNS(up_lone), .row = up4_llama },
	{ "up-4-gemma", "scoring queries at 128K, Gemma-3-12B",
	  "UniPrefill (2026), Table 4, vLLM 0.16.0, TP 8", ranks,
	  .model = "gemma-3-12b", GEMMA, .tp = 8, COLUMNS(up_lone), .row = up4_gemma },
	{ "bfla-1", "prefill latency by context, Gemma-4-E4B",
	  "BFLA (2026), Table 1, A100", unverified,
	  .model = "", LLAMA, .tp = 1, COLUMNS(bfla_lengths), .row = bfla1_rows },
	{ "bfla-2", "prefill latency by context, Qwen3.6-27B",
	  "BFLA (2026), Table 2, A100", unverified,
	  .model = "", LLAMA, .tp = 1, COLUMNS(bfla_lengths), .row = bfla2_rows },
	{ 0 }
};
/* clang-format on */

const struct paper_table *paper_find(const char *name)
{
	const struct paper_table *t = paper_tables;

	while (t->name && strcmp(t->name, name))
		t++;
	return t->name ? t : NULL;
}

const struct paper_method *paper_method(const char *name)
{
	const struct paper_method *m = methods;

	while (m->name && strcmp(m->name, name))
		m++;
	return m->name ? m : NULL;
}

double paper_printed(const struct paper_table *t, const struct paper_row *r, int col)
{
	return r->figure[t->first + col];
}

double paper_figure(const struct paper_table *t, const struct paper_row *r, int col)
{
	const struct paper_column *c = &t->column[col];

	if (r->what != PAPER_CALL)
		return paper_printed(t, r, col);
	return paper_printed(t, r, col) / ((double)(c->context / c->chunk) * t->n_layers);
}

double paper_speedup(const struct paper_table *t, const struct paper_row *r, int col)
{
	if (r->what == PAPER_SPEEDUP || r->what == PAPER_KERNEL || r->what == PAPER_PREFILL)
		return paper_printed(t, r, col);
	for (const struct paper_row *d = t->row; d->label && r->what == PAPER_CALL; d++)
		if (d->what == PAPER_CALL && !strcmp(d->method, "dense"))
			return paper_printed(t, d, col) / paper_printed(t, r, col);
	return NAN;
}

static bool same_model(const struct paper_table *a, const struct paper_table *b)
{
	return a->q_heads == b->q_heads && a->kv_heads == b->kv_heads && a->n_layers == b->n_layers;
}

/* The figure of a method in the tables of the same model; NaN: none.  chunk 0: any. */
static double find_figure(const struct paper_table *t, const char *method, enum paper_quantity what,
			  int64_t context, int64_t chunk)
{
	for (const struct paper_table *x = paper_tables; x->name; x++)
		for (const struct paper_row *r = x->row; r->label && same_model(x, t); r++)
			for (int i = 0; i < x->n_column; i++)
				if (r->what == what && !strcmp(r->method, method) &&
				    x->column[i].context == context &&
				    (!chunk || x->column[i].chunk == chunk))
					return paper_printed(x, r, i);
	return NAN;
}

double paper_sparsity(const struct paper_table *t, const struct paper_row *r, int col,
		      bool *selected)
{
	const struct paper_column *c = &t->column[col];
	const struct paper_method *m = paper_method(r->method);
	const char *method = m && m->as ? m->as : r->method;
	double x = m && m->sparsity ? m->sparsity :
				      find_figure(t, method, PAPER_GROUP, c->context, c->chunk);

	if (t->sparsity && strcmp(r->method, "dense") != 0) {
		*selected = true;
		return t->sparsity;
	}
	*selected = isnan(x);
	return *selected ? find_figure(t, method, PAPER_SPARSITY, c->context, 0) : x;
}
