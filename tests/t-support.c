/* SPDX-License-Identifier: Apache-2.0 */
/* Support of the kernels: every family is in the table, and refusals name the supported values. */
#include "config.h"

#include <string.h>

#include "base/gpu.h"
#include "kernels/drop/dropper.h"
#include "kernels/methods/method.h"
#include "kernels/support.h"
#include "tests/tap.h"

/* Without CUDA the table has the kernels of all builds. */
#define HAS_SM90 (!HAVE_CUDA || HAVE_SM90A)

static bool in_table(const char *kernel)
{
	for (const struct support *s = supports; s->kernel; s++)
		if (!strcmp(s->kernel, kernel))
			return true;
	return false;
}

/* Whether two rows are of one family, and differ in members that must not depend on the GPU. */
static bool clash(const struct support *a, const struct support *b)
{
	return !strcmp(a->kernel, b->kernel) && (a->page_toks != b->page_toks || !a->fn != !b->fn ||
						 (a != b && HAVE_CUDA && !a->fn));
}

static void test_families(void)
{
	for (const struct support *a = supports; a->kernel; a++) {
		const struct support *b = supports;

		while (b->kernel && !clash(a, b))
			b++;
		ok(!b->kernel && (HAVE_CUDA || !a->fn),
		   "%s, %d: rows of a family have the same page sizes, and functions to choose "
		   "from",
		   a->kernel, a->cc_min);
	}
}

static void test_table(void)
{
	int bad = 0;

	for (const struct support *s = supports; s->kernel; s++)
		bad += s->cc_min < 80 || (s->cc_max && s->cc_max < s->cc_min);
	ok(!bad, "every row has a range of GPUs");
	test_families();
	for (int i = 0; selectors[i]; i++)
		ok(!selectors[i]->ref || in_table(selectors[i]->name),
		   "selector %s has a row in kernels/support.c, or selects nothing",
		   selectors[i]->name);
	for (int i = 0; executors[i]; i++)
		ok(executors[i]->kernel && in_table(executors[i]->kernel),
		   "executor %s has rows of its family in kernels/support.c", executors[i]->name);
	for (int i = 0; droppers[i]; i++)
		ok(in_table(droppers[i]->name), "dropper %s has a row in kernels/support.c",
		   droppers[i]->name);
	ok(in_table("decode") && in_table("delta") && in_table("ssm"),
	   "decode, delta and ssm have rows, too");
}

static void refused(const char *kernel, int dim, int page_tok, int cc, const char *message)
{
	struct attn_shape s = { 8, 2, dim, page_tok };
	struct ar_err err = { 0 };
	enum ar_status st = support_check(kernel, &s, NULL, cc, &err);

	ok(st == AR_USAGE && !strcmp(err.msg, message), "%s", message);
	if (strcmp(err.msg, message))
		diag("%s", err.msg);
}

static bool runs(const char *kernel, int dim, int page_tok, int cc)
{
	struct ar_err err;

	return !support_check(kernel, &(struct attn_shape){ 8, 2, dim, page_tok }, NULL, cc, &err);
}

static void test_messages(void)
{
	refused("columns", 96, 128, 90,
		"columns: head size 96; supported 64, 128, 256 on compute capability 9.0");
	refused("columns", 96, 128, 0, "columns: head size 96; supported 64, 128, 256");
	refused("attend", 256, 64, 80,
		"attend: head size 256; supported 64, 128 on compute capability 8.0");
	refused("attend", 256, 64, 120,
		"attend: head size 256; supported 64, 128 on compute capability 12.0");
	refused("attend", 64, 64, 75, "attend: compute capability 7.5; supported 8.0 and later");
	refused("attend", 192, 64, 90,
		HAS_SM90 ?
			"attend: head size 192; supported 64, 128, 256 on compute capability 9.0" :
			"attend: head size 192; supported 64, 128 on compute capability 9.0");
	refused("seer", 128, 128, 90,
		"seer: page size 128; supported 64 on compute capability 9.0");
	refused("decode", 128, 32, 0, "decode: page size 32; supported 64, 128");
	refused("nothing", 128, 128, 90, "nothing: there is no CUDA kernel");
	ok(runs("attend", 256, 128, 90) == HAS_SM90 && runs("attend", 256, 128, 0) == HAS_SM90 &&
		   runs("attend", 128, 64, 86) && runs("ashape", 96, 32, 90),
	   "what there are kernels for in the build passes");
}

static struct method *parse(const char *text)
{
	struct method *m;
	struct ar_err err;

	if (method_parse(&m, text, &err))
		bail_out("%s", err.msg);
	return m;
}

/* A layout that the table lacks is refused before anything is allocated. */
static void test_layouts(void)
{
	static const struct cache_layout odd = {
		"odd-bf16", 1u << 31, 1, { { 1, 576, ELEM_BF16 } }
	};
	static const struct attn_shape s = { 8, 2, 128, 128 };
	struct selector_env env = { .shape = s, .n_layers = 1, .layout = &odd };
	struct method *m = parse("compact-fp");
	struct ar_err err = { 0 };
	int bad = 0;

	for (const struct support *row = supports; row->kernel; row++)
		bad += row->page_toks != SUPPORT_ANY && row->layouts == SUPPORT_ANY;
	ok(!bad, "a row with page sizes names its layouts");
	ok(support_check("attend", &s, &odd, 90, &err) == AR_USAGE &&
		   !support_find("attend", &s, &odd, 90),
	   "a layout that kernels do not take is refused");
	is_str(err.msg, "attend: cache odd-bf16; supported kv-bf16 on compute capability 9.0",
	       "... with what they take");
	ok(!support_check("attend", &s, cache_layouts, 90, &err) &&
		   !support_check("ashape", &s, &odd, 90, &err),
	   "kernels that do not read the cache take any");
	ok(method_supported(method_prefill(m), &s, &odd, 0, &err) == AR_USAGE &&
		   !strcmp(err.msg, "flashprefill: cache odd-bf16; supported kv-bf16"),
	   "a method asks for its selector: %s", err.msg);
	ok(method_open(m, &env, &err) == AR_USAGE &&
		   !strcmp(err.msg, "method 'compact-fp': cache odd-bf16; references take kv-bf16"),
	   "references refuse it, too: %s", err.msg);
	method_free(m);
}

/* The first row that runs the shape is taken. */
static void test_find(void)
{
	static const struct attn_shape s = { 8, 2, 128, 128 }, wide = { 8, 2, 256, 128 },
				       odd = { 8, 2, 96, 128 };
	const struct executor *x = executor_find("paged");
	const struct support *here, *old = support_find("attend", &s, NULL, 80);
	const struct gpu hopper = { .cc = 90, .n_sm = 132 }, ampere = { .cc = 80, .n_sm = 108 };

	here = support_find("attend", &s, NULL, 90);
	ok(old && !old->parts && here && here->parts == HAS_SM90 && (here == old) == !HAS_SM90 &&
		   !support_find("attend", &wide, NULL, 80) &&
		   !support_find("attend", &odd, NULL, 0) && !support_find("nothing", &s, NULL, 0),
	   "a GPU runs the first row that has the shape");
	ok(executor_n_sm(x, &s, &hopper) == (HAS_SM90 ? 132 : 0) &&
		   !executor_n_sm(x, &s, &ampere) && !executor_n_sm(x, &odd, &hopper),
	   "tiles are cut for kernels that take parts");
}

static void test_dispatch(void)
{
	static const struct attn_shape s = { 8, 2, 128, 128 }, odd = { 8, 2, 96, 128 };
	const struct gpu *gpu;
	struct ar_err err = { 0 };
	support_fn *fn = NULL;
	enum ar_status st = support_dispatch(&fn, "attend", &s, NULL, &err);

	if (gpu_current(&gpu, &err))
		ok(st == (HAVE_CUDA ? AR_CUDA : AR_NODEV) && *err.msg && !fn,
		   "without a GPU nothing is dispatched: %s", err.msg);
	else
		ok(!st && fn == support_find("attend", &s, NULL, gpu->cc)->fn &&
			   support_dispatch(&fn, "attend", &odd, NULL, &err) == AR_USAGE &&
			   strstr(err.msg, "attend: head size 96; supported"),
		   "a shape without a kernel is not dispatched: %s", err.msg);
}

static void test_methods(void)
{
	static const struct attn_shape odd = { 8, 2, 96, 128 }, good = { 8, 2, 128, 128 };
	struct method *m = parse("select=ashape/union=none/exec=columns");
	struct selector_env env = { .shape = odd, .n_layers = 1, .device = true };
	const struct gpu *gpu = NULL;
	struct ar_err err = { 0 };
	bool device;

	ok(method_supported(method_prefill(m), &odd, NULL, 90, &err) == AR_USAGE &&
		   !strncmp(err.msg, "columns: head size 96;", 22),
	   "a method asks for its executor");
	ok(!method_supported(method_prefill(m), &good, NULL, 90, &err),
	   "and passes if all of its parts do");
	device = !gpu_current(&gpu, &err);
	ok(method_open(m, &env, &err) == (device    ? AR_USAGE :
					  HAVE_CUDA ? AR_CUDA :
						      AR_NODEV) &&
		   !strncmp(err.msg, "method 'select=ashape", 21),
	   "it is asked when it is opened");
	env.device = false;
	ok(!method_open(m, &env, &err), "but not for a reference");
	method_free(m);
	m = parse("select=bfla/union=none/exec=blocksparse");
	ok(method_supported(method_prefill(m), &(struct attn_shape){ 8, 2, 128, 64 }, NULL, 90,
			    &err) == AR_USAGE &&
		   !strncmp(err.msg, "bfla: page size 64; supported 128 on", 36),
	   "a method asks for its selector");
	method_free(m);
}

int main(void)
{
	plan(0);
	test_table();
	test_messages();
	test_layouts();
	test_find();
	test_dispatch();
	test_methods();
	return done_testing();
}
