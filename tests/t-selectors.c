/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of selectors: each has all members that it must have, and one that lacks a member is
 * refused. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "kernels/methods/method.h"
#include "kernels/select/work.h"
#include "tests/selector_case.h"
#include "tests/tap.h"

/* ---- every selector ---- */

static void test_descriptor(const struct selector *s)
{
	struct ar_err err = { 0 };

	if (!ok(!selector_check(s, &err), "%s: the descriptor is whole", s->name))
		diag("%s", err.msg);
}

static void *defaults(const struct selector *s)
{
	void *param = calloc(1, s->param_size + 1);
	struct opt_group g[2] = { { .opts = s->params, .base = param }, { 0 } };
	struct ar_err err;

	if (!param || opt_init(g, &err))
		bail_out("%s: no parameters", s->name);
	return param;
}

static void release(const struct selector *s, void *param)
{
	struct opt_group g[2] = { { .opts = s->params, .base = param }, { 0 } };

	opt_release(g);
	free(param);
}

/* A chunk costs something, and no less with more rows or more keys. */
static void test_work(const struct selector *s)
{
	const struct attn_shape shape = { 32, 8, 128, 128 };
	void *param = defaults(s);
	struct selector_work last = { 0 };
	bool good = true;

	for (int64_t n = 1; n <= 1 << 17; n *= 2) {
		struct selector_work few = s->work(param, &shape,
						   &(struct selector_chunk){ 4096, n });
		struct selector_work far = s->work(param, &shape,
						   &(struct selector_chunk){ 65536, n });

		good &= few.launches > 0 && isfinite(far.flops) && isfinite(far.bytes);
		good &= few.flops >= last.flops && few.bytes >= last.bytes;
		good &= far.flops >= few.flops && far.bytes >= few.bytes;
		last = few;
	}
	ok(good, "%s: .work: a chunk is a launch or more, and rows and keys never cost less",
	   s->name);
	release(s, param);
}

/* Methods of the tests are its own. */
static bool is_own(const struct selector *s, const char *method, const char *value)
{
	char text[160];
	struct method *m;
	const struct method_part *decode;
	struct ar_err err = { 0 };
	bool own;

	selector_text(text, sizeof text, method, value);
	if (method_parse(&m, text, &err)) {
		diag("%s", err.msg);
		return false;
	}
	decode = &m->part[ROW_DECODE];
	own = (s->gives != SHAPE_PIECES ? method_prefill(m)->selector :
	       s->prunes		? decode->prune->selector :
					  decode->selector) == s;
	method_free(m);
	return own;
}

static void test_methods(const struct selector *s)
{
	bool own = true;

	for (const struct selector_band *b = s->band; b && b->method; b++)
		own &= is_own(s, b->method, b->value);
	for (const struct selector_order *o = s->order; o && o->method; o++)
		own &= is_own(s, o->method, o->value[0]);
	ok(own, "%s: .band, .order: methods are of this selector", s->name);
}

/* ---- refusals ---- */

static const struct opt params[] = {
	{ .name = "share", .type = OPT_REAL, .arg = "X", .def = "1", .max = 1, .help = "a share" },
	{ .name = "count", .type = OPT_INT, .off = 8, .arg = "N", .def = "1", .help = "a count" },
	{ 0 }
};

static enum ar_status ref(const struct attn_call *call, const void *self,
			  const struct selection *out, struct ar_err *err)
{
	(void)call, (void)self, (void)out, (void)err;
	return AR_OK;
}

static size_t work_bytes(const void *self, const struct attn_shape *s, const struct attn_limits *l)
{
	(void)self, (void)s, (void)l;
	return 0;
}

static struct selector_work work(const void *param, const struct attn_shape *s,
				 const struct selector_chunk *c)
{
	(void)param, (void)s, (void)c;
	return (struct selector_work){ 0 };
}

static const struct selector_band bands[] = { { "a:share=%", "1", "0.9", "1", 0.1 }, { 0 } };
static const struct selector_order orders[] = {
	{ .method = "a:share=%", .value = { "0", "1", "1", "1" } }, { 0 }
};

static struct piece_form pieces(const void *self, const struct attn_shape *s, int len)
{
	(void)self, (void)s, (void)len;
	return (struct piece_form){ 0 };
}

static size_t state_bytes(const void *self, const struct attn_shape *s)
{
	(void)self, (void)s;
	return 0;
}

static enum ar_status append(const struct attn_call *call, const void *self, struct ar_err *err)
{
	(void)call, (void)self, (void)err;
	return AR_OK;
}

static struct selector whole(void)
{
	return (struct selector){ .version = AR_SELECTOR_VERSION,
				  .name = "a-1",
				  .title = "all",
				  .origin = "a test",
				  .params = params,
				  .param_size = 16,
				  .threshold = "share",
				  .work = work,
				  .ref = ref,
				  .band = bands,
				  .order = orders,
				  .work_bytes = work_bytes,
				  .enqueue = ref };
}

static void refused(struct selector s, const char *member)
{
	struct ar_err err = { 0 };
	char want[64];

	snprintf(want, sizeof want, "selector '%s': .%s: ", s.name ? s.name : "", member);
	if (!ok(selector_check(&s, &err) == AR_USAGE && !strncmp(err.msg, want, strlen(want)) &&
			strlen(err.msg) > strlen(want) + 10,
		"%s... and what to do", want))
		diag("%s", err.msg);
}

/* The whole descriptor with one member changed. */
#define REFUSED(member, ...) \
	do { \
		struct selector s = whole(); \
		s.member = __VA_ARGS__; \
		refused(s, #member); \
	} while (0)

static void test_members(void)
{
	REFUSED(version, AR_SELECTOR_VERSION + 1);
	REFUSED(name, NULL);
	REFUSED(name, "");
	REFUSED(name, "a/b");
	REFUSED(name, "A");
	REFUSED(title, NULL);
	REFUSED(origin, NULL);
	REFUSED(params, NULL);
	REFUSED(param_size, 8);
	REFUSED(threshold, "count");
	REFUSED(threshold, "none");
	REFUSED(gives, SHAPE_MASK);
	REFUSED(gives, SHAPE_TOKENS | SHAPE_COLUMNS);
	REFUSED(work, NULL);
	REFUSED(ref, NULL);
	REFUSED(enqueue, NULL);
}

static void test_pairs(void)
{
	struct selector s = whole();

	test_descriptor(&s);
	s.gives = SHAPE_COLUMNS;
	refused(s, "columns");
	s.gives = SHAPE_PIECES;
	refused(s, "pieces");
	s.pieces = pieces;
	test_descriptor(&s);
	s.append_ref = append;
	refused(s, "append_ref");
	s.state_bytes = state_bytes;
	test_descriptor(&s);
	s.append_ref = NULL;
	refused(s, "append_ref");
	s = whole();
	s.close = free;
	refused(s, "open");
}

static void refuse_band(struct selector_band b)
{
	const struct selector_band list[] = { b, { 0 } };
	struct selector s = whole();

	s.band = list;
	refused(s, "band");
}

static void refuse_order(struct selector_order o)
{
	const struct selector_order list[] = { o, { 0 } };
	struct selector s = whole();

	s.order = list;
	refused(s, "order");
}

static void test_cases(void)
{
	REFUSED(band, NULL);
	REFUSED(order, NULL);
	refuse_band((struct selector_band){ 0 });
	refuse_band((struct selector_band){ "a", "1", NULL, NULL, 0 });
	refuse_band((struct selector_band){ "a:x=%", NULL, NULL, NULL, 0 });
	refuse_band((struct selector_band){ "a:x=%", "1", "1", NULL, 0 });
	refuse_band((struct selector_band){ "a:x=%", "1", NULL, "1", 0 });
	refuse_band((struct selector_band){ "a", NULL, "1", "2", 0 });
	refuse_band((struct selector_band){ "a", NULL, NULL, NULL, 1 });
	refuse_band((struct selector_band){ "a", NULL, NULL, NULL, -0.1 });
	refuse_order((struct selector_order){ 0 });
	refuse_order((struct selector_order){ .method = "a" });
	refuse_order((struct selector_order){ .method = "a", .value = { "1", "1", "1", "1" } });
	refuse_order((struct selector_order){ .method = "a:x=%", .value = { "1", "1", "1" } });
}

/* Names are unique, and there is room for SELECTORS_MAX. */
static void test_table(void)
{
	static struct selector more[SELECTORS_MAX];
	static char name[SELECTORS_MAX][16];
	struct ar_err err;
	int n = 0;

	more[0] = whole();
	more[0].name = "quoka";
	ok(selector_add(&more[0], &err) == AR_USAGE && strstr(err.msg, "exists already"),
	   "a name that is taken is refused");
	more[0].title = NULL;
	ok(selector_add(&more[0], &err) == AR_USAGE && strstr(err.msg, ".title"),
	   "... as is what lacks a member");
	while (selectors[n])
		n++;
	for (int i = n; i < SELECTORS_MAX; i++) {
		snprintf(name[i], sizeof name[i], "a-%d", i);
		more[i] = whole();
		more[i].name = name[i];
		if (selector_add(&more[i], &err) || selector_find(name[i]) != &more[i])
			bail_out("%s", err.msg);
	}
	more[0] = whole();
	ok(selector_add(&more[0], &err) == AR_USAGE && strstr(err.msg, "room for 32"),
	   "%d selectors are all that there is room for", SELECTORS_MAX);
}

#define SIZE(type, n) \
	{ \
#type, sizeof(struct type), n \
	}

/* Plug-ins were built with these structs. */
static void test_layout(void)
{
	static const struct {
		const char *name;
		size_t is, was;
	} structs[] = {
		SIZE(selector, 216),	  SIZE(selector_env, 64),   SIZE(selector_band, 40),
		SIZE(selector_order, 48), SIZE(selector_chunk, 16), SIZE(selector_work, 32),
		SIZE(selector_form, 48),  SIZE(opt, 120),	    SIZE(attn_shape, 16),
		SIZE(attn_limits, 24),	  SIZE(attn_batch, 200),    SIZE(attn_call, 152),
		SIZE(selection, 120),	  SIZE(ar_err, 516),
	};

	for (size_t i = 0; i < sizeof structs / sizeof *structs; i++)
		is_int((long long)structs[i].is, (long long)structs[i].was,
		       "struct %s: a change of its size raises AR_SELECTOR_VERSION %d",
		       structs[i].name, AR_SELECTOR_VERSION);
}

static void test_selector(const struct selector *s)
{
	test_descriptor(s);
	if (s->work)
		test_work(s);
	test_methods(s);
}

int main(int argc, char **argv)
{
	plan(0);
	for (int i = selector_first(argc, argv); selectors[i]; i++)
		test_selector(selectors[i]);
	if (argc == 1) {
		for (int i = 0; decode_selectors[i]; i++)
			test_selector(decode_selectors[i]);
		test_members();
		test_pairs();
		test_cases();
		test_table();
		if (sizeof(void *) == 8)
			test_layout();
	}
	return done_testing();
}
