/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/support.h"

#include <stdio.h>
#include <string.h>

#include "base/gpu.h"
#include "kernels/attend/attend.h"
#include "kernels/delta/delta_work.h"
#include "kernels/exec/columns/columns.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/proxyattn/proxyattn.h"
#include "kernels/select/quoka/quoka.h"
#include "kernels/select/xattention/xattention.h"
#include "kernels/ssm/ssm_work.h"

#define ALL_DIMS (64 | 128 | 256)
#define BOTH (64 | 128)
#define KV CACHE_KV_BF16
#define HAS_SM90 (!HAVE_CUDA || HAVE_SM90A) /* without CUDA, all rows are there */
#define FN(f) (HAVE_CUDA ? (support_fn *)(f) : NULL)

const struct support supports[] = {
#if HAS_SM90 /* wgmma and TMA */
	{ "attend", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(attend_sm90_enqueue), .parts = true },
	{ "attend-skip", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(attend_sm90_enqueue) },
	{ "columns", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(columns_sm90_enqueue), .parts = true },
	{ "decode-tiles", 90, 90, BOTH, BOTH, KV, .fn = FN(decode_sm90_launch) },
	{ "delta", 90, 90, 128, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(delta_prefill_sm90) },
	{ "delta-step", 90, 90, BOTH, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(delta_decode_sm90) },
	{ "lastq", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(lastq_sm90_enqueue) },
	{ "lastq-blocks", 90, 90, 64 | 128, 128, KV, .fn = FN(lastq_sm90_rows_enqueue) },
	{ "lastq-columns", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(lastq_sm90_columns_enqueue) },
	{ "proxyattn", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(proxyattn_sm90_enqueue) },
	{ "quoka", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(quoka_sm90_enqueue) },
	{ "ssm", 90, 90, 64, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(ssm_prefill_sm90) },
	{ "xattention", 90, 90, ALL_DIMS, BOTH, KV, .fn = FN(xattention_sm90_enqueue) },
#endif
	/* attention */
	{ "attend", 80, 0, 64 | 128, BOTH, KV, .fn = FN(attend_sm80_enqueue) },
	/* 256 needs 193 KiB of shared memory */
	{ "columns", 80, 0, 64 | 128, BOTH, KV, .fn = FN(columns_sm80_enqueue) },
	{ "columns", 90, 119, 256, BOTH, KV, .fn = FN(columns_sm80_enqueue) },
	{ "decode", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "decode-skip", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	/* gated DeltaNet; 128 needs 163 KiB of shared memory */
	{ "delta", 80, 0, 64, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(delta_prefill_sm80) },
	{ "delta", 80, 80, 128, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(delta_prefill_sm80) },
	{ "delta", 90, 119, 128, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(delta_prefill_sm80) },
	{ "delta-step", 80, 0, BOTH, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(delta_decode_sm80) },
	/* Mamba-2 */
	{ "ssm", 80, 0, BOTH, SUPPORT_ANY, SUPPORT_ANY, .fn = FN(ssm_prefill_sm80) },
	/* selectors, and kernels that several selectors share */
	{ "ashape", 80, 0, SUPPORT_ANY, SUPPORT_ANY, .layouts = SUPPORT_ANY },
	{ "bfla", 80, 0, ALL_DIMS, 128, .layouts = KV },
	{ "density", 80, 0, SUPPORT_ANY, SUPPORT_ANY, .layouts = SUPPORT_ANY },
	{ "duo", 80, 0, SUPPORT_ANY, SUPPORT_ANY, .layouts = SUPPORT_ANY },
	{ "flashprefill", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "flexprefill", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "lastq", 80, 0, ALL_DIMS, BOTH, KV, .fn = FN(lastq_sm80_enqueue) },
	{ "minference", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "oracle", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "proxyattn", 80, 0, ALL_DIMS, BOTH, KV, .fn = FN(proxyattn_sm80_enqueue) },
	{ "quest", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "quoka", 80, 0, ALL_DIMS, BOTH, KV, .fn = FN(quoka_sm80_enqueue) },
	{ "rocket", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "seer", 80, 0, ALL_DIMS, 64, .layouts = KV },
	{ "streaming", 80, 0, SUPPORT_ANY, SUPPORT_ANY, .layouts = SUPPORT_ANY },
	{ "topk", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "trishape", 80, 0, SUPPORT_ANY, SUPPORT_ANY, .layouts = SUPPORT_ANY },
	{ "twilight", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	/* 195 KiB of shared memory */
	{ "xattention", 90, 119, ALL_DIMS, BOTH, KV, .fn = FN(xattention_sm80_enqueue) },
	/* droppers */
	{ "lazyllm", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "sliminfer", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ "uniprefill", 80, 0, ALL_DIMS, BOTH, .layouts = KV },
	{ 0 }
};

static bool on(const struct support *s, int cc)
{
	return !cc || (cc >= s->cc_min && (!s->cc_max || cc <= s->cc_max));
}

struct support_sum support_sum(const struct support *rows, const char *kernel, int cc)
{
	struct support_sum x = { 0 };

	for (const struct support *s = rows; s->kernel; s++) {
		if (strcmp(s->kernel, kernel))
			continue;
		x.cc_min = x.cc_min && x.cc_min < s->cc_min ? x.cc_min : s->cc_min;
		if (!on(s, cc))
			continue;
		x.found = true;
		x.head_dims |= s->head_dims;
		x.page_toks |= s->page_toks;
		x.layouts |= s->layouts;
	}
	return x;
}

static bool has(unsigned sizes, int size)
{
	bool power = size > 0 && !(size & (size - 1));

	return sizes == SUPPORT_ANY || (power && sizes & (unsigned)size);
}

static bool takes_layout(unsigned layouts, const struct cache_layout *l)
{
	return layouts == SUPPORT_ANY || layouts & cache_layout(l)->bit;
}

const char *support_sizes(unsigned sizes, char *buf, size_t n)
{
	size_t at = 0;

	snprintf(buf, n, "any");
	for (unsigned k = 1; k && at < n; k <<= 1)
		if (sizes & k)
			at += (size_t)snprintf(buf + at, n - at, "%s%u", at ? ", " : "", k);
	return buf;
}

const char *support_layouts(unsigned bits, char *buf, size_t n)
{
	size_t at = 0;

	snprintf(buf, n, "any");
	for (const struct cache_layout *l = cache_layouts; l->name && at < n; l++)
		if (bits & l->bit)
			at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", l->name);
	return buf;
}

/* "KERNEL: WHAT; supported LIST on compute capability 9.0" */
static enum ar_status refuse_kernel(const char *kernel, const char *what, const char *list, int cc,
				    struct ar_err *err)
{
	char on[48] = "";

	if (cc)
		snprintf(on, sizeof on, " on compute capability %d.%d", cc / 10, cc % 10);
	return ar_fail(err, AR_USAGE, "%s: %s; supported %s%s", kernel, what, list, on);
}

static enum ar_status refuse_size(const char *kernel, const char *what, int size, unsigned sizes,
				  int cc, struct ar_err *err)
{
	char list[64], name[32];

	snprintf(name, sizeof name, "%s %d", what, size);
	return refuse_kernel(kernel, name, support_sizes(sizes, list, sizeof list), cc, err);
}

static enum ar_status refuse_layout(const char *kernel, const struct cache_layout *l, unsigned bits,
				    int cc, struct ar_err *err)
{
	char list[64], name[48];

	snprintf(name, sizeof name, "cache %s", l->name);
	return refuse_kernel(kernel, name, support_layouts(bits, list, sizeof list), cc, err);
}

enum ar_status support_check(const char *kernel, const struct attn_shape *s,
			     const struct cache_layout *layout, int cc, struct ar_err *err)
{
	return support_check_in(supports, kernel, s, layout, cc, err);
}

enum ar_status support_check_in(const struct support *rows, const char *kernel,
				const struct attn_shape *s, const struct cache_layout *layout,
				int cc, struct ar_err *err)
{
	struct support_sum x = support_sum(rows, kernel, cc);

	if (!x.cc_min)
		return ar_fail(err, AR_USAGE, "%s: there is no CUDA kernel", kernel);
	if (!x.found)
		return ar_fail(err, AR_USAGE,
			       "%s: compute capability %d.%d; supported %d.%d and "
			       "later",
			       kernel, cc / 10, cc % 10, x.cc_min / 10, x.cc_min % 10);
	if (!has(x.head_dims, s->head_dim))
		return refuse_size(kernel, "head size", s->head_dim, x.head_dims, cc, err);
	if (!has(x.page_toks, s->page_tok))
		return refuse_size(kernel, "page size", s->page_tok, x.page_toks, cc, err);
	if (!takes_layout(x.layouts, layout))
		return refuse_layout(kernel, cache_layout(layout), x.layouts, cc, err);
	return AR_OK;
}

const struct support *support_find(const char *kernel, const struct attn_shape *s,
				   const struct cache_layout *layout, int cc)
{
	for (const struct support *row = supports; row->kernel; row++)
		if (on(row, cc) && has(row->head_dims, s->head_dim) &&
		    has(row->page_toks, s->page_tok) && takes_layout(row->layouts, layout) &&
		    !strcmp(row->kernel, kernel))
			return row;
	return NULL;
}

enum ar_status support_dispatch(support_fn **fn, const char *kernel, const struct attn_shape *s,
				const struct cache_layout *layout, struct ar_err *err)
{
	const struct support *row;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (st)
		return st;
	row = support_find(kernel, s, layout, gpu->cc);
	if (!row)
		return support_check(kernel, s, layout, gpu->cc, err);
	*fn = row->fn;
	return AR_OK;
}
