/* SPDX-License-Identifier: Apache-2.0 */
/* Droppers: numbers of rows, spellings, layers, and allocations that fail. */
#include "config.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/drop/lazyllm/lazyllm.h"
#include "tests/alloc_fault.h"
#include "tests/drop_case.h"
#include "tests/selector_case.h"
#include "tests/tap.h"

static const struct attn_shape tiny = { 2, 1, 4, 4 };

/* ---- index ---- */

/* A decode is not in the batch, so the prefill's rows begin at 0. */
static void test_index(void)
{
	int ctx[] = { 0, 0, 5 }, rows[] = { 22, 0, 3 };
	struct rng rng = { 3 };
	struct batch_case c;
	struct drop_kept x;

	case_chunks(&c, &rng, FILL_NORMAL, tiny, 3, ctx, rows);
	x = drop_kept_new(&c);
	for (int i = 0; i < 25; i++)
		x.keep[i] = i < 2 || (i > 11 && i != 23);
	drop_index(&c.b.rows, &x);
	is_str(drop_ranges(x.n_keep, 3), "12 0 2", "how many rows stay, by request");
	is_str(drop_ranges(x.index, 14), "0-1 12-22 24", "and which");
	drop_kept_free(&x);
	case_release(&c);
}

/* ---- spellings and layers ---- */

static void test_parse(void)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ "nothing", "unknown name: want one that 'attnreplay methods' lists" },
		{ "uniprefill:p=2", "p '2': want a number from 0 to 1" },
		{ "uniprefill:block=48", "block=48: want a power of two" },
		{ "uniprefill:scores=chunk", "scores=chunk: only with mode=append" },
		{ "uniprefill:layers=7+7", "layers '7+7': want LAYER+LAYER..., ascending" },
		{ "uniprefill:layers=7:0.5", "layers '7:0.5': want LAYER+LAYER..., ascending" },
		{ "uniprefill:layers=7+", "layers '7+': want LAYER+LAYER..., ascending" },
		{ "sliminfer:layers=7",
		  "layers '7': want LAYER:VALUE+LAYER:VALUE..., layers ascending and values from 0 "
		  "to 1.04858e+06" },
		{ "sliminfer:unit=24", "unit=24: block=64 is not a multiple of it" },
		{ "lazyllm:layers=7:1.5",
		  "layers '7:1.5': want LAYER:VALUE+LAYER:VALUE..., layers ascending and values "
		  "from 0 to 1" },
		{ "lazyllm:revive-max=0", "revive-max '0': want an integer from 1 to 1024" },
		{ "lazyllm:revive-max=16", "revive-max: only with aux-revival=1" },
		{ "lazyllm:revive-max=3,aux-revival=0", "revive-max: only with aux-revival=1" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct drop *d = (struct drop *)1;
		struct ar_err err = { 0 };
		char want[512];

		snprintf(want, sizeof want, "dropper '%s': %s", bad[i].text, bad[i].message);
		is_int(drop_parse(&d, bad[i].text, &err), AR_USAGE, "'%s' is refused", bad[i].text);
		is_str(err.msg, want, "which the message explains");
		ok(!d, "and nothing is made");
	}
}

static void make_model(struct model *m, const char *name, int n, int period, enum mixer other)
{
	struct ar_err err;

	memset(m, 0, sizeof *m);
	snprintf(m->name, sizeof m->name, "%s", name);
	if (model_set_layers(m, n, &(struct layer_spec){ .q_heads = 8 }, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < n; i++)
		m->layer[i].mixer = (i + 1) % period ? other : MIX_FULL;
}

/* The layers at which a dropper acts, or the message that it refuses a model with. */
static const char *layers_of(const char *text, const struct model *m)
{
	static struct ar_err err;
	int32_t layer[64];
	struct drop *d;
	int n = 0;

	if (drop_parse(&d, text, &err))
		bail_out("%s", err.msg);
	if (drop_open(d, m, &err)) {
		drop_free(d);
		return err.msg;
	}
	for (int i = 0; i < m->n_layers; i++)
		if (drop_acts_after(d, i))
			layer[n++] = i;
	drop_free(d);
	return drop_ranges(layer, n);
}

static void test_layers(void)
{
	struct model plain, next, gemma;

	make_model(&plain, "plain", 32, 1, MIX_FULL);
	make_model(&next, "next", 48, 4, MIX_LINEAR);
	make_model(&gemma, "gemma", 48, 6, MIX_WINDOW);
	is_str(layers_of("uniprefill", &plain), "7 11 15 19 23 27", "published layers of 32");
	is_str(layers_of("uniprefill", &next), "7 11 15 19 23 27 31 35 39 43",
	       "of 48, most of them linear");
	is_str(layers_of("uniprefill", &gemma), "29 35 41", "and of 48, most of them windows");
	is_str(layers_of("uniprefill:layers=5+11", &gemma), "5 11", "layers that are given");
	is_str(layers_of("uniprefill:layers=5+12", &gemma),
	       "dropper 'uniprefill:layers=5+12': layer 12 of model 'gemma' is not one of full "
	       "attention",
	       "layers of windows drop nothing");
	is_str(layers_of("uniprefill:layers=48", &gemma),
	       "dropper 'uniprefill:layers=48': layer 48: model 'gemma' has 48 layers",
	       "layers end with the model");
	gemma.layer[0].mixer = MIX_FULL;
	is_str(layers_of("uniprefill", &gemma),
	       "dropper 'uniprefill': no layers are published for model 'gemma': add "
	       "layers=LAYER+LAYER...",
	       "other models need a list");
	is_str(layers_of("sliminfer", &plain), "10 20", "sliminfer has layers for 32");
	is_str(layers_of("sliminfer", &next),
	       "dropper 'sliminfer': the default layers are for models of 32 layers, but model "
	       "'next' has 48: add layers=LAYER:SHARE+LAYER:SHARE...",
	       "only");
	is_str(layers_of("lazyllm", &plain), "12 20 28", "lazyllm has layers for 32");
	is_str(layers_of("lazyllm", &next),
	       "dropper 'lazyllm': the default layers are for models of 32 layers, but model "
	       "'next' has 48: add layers=LAYER:RATE+LAYER:RATE...",
	       "only");
	ok(!drop_acts_after(NULL, 7), "without a dropper none acts");
	model_release(&plain);
	model_release(&next);
	model_release(&gemma);
}

static void test_params(void)
{
	struct ar_err err;
	struct model m;
	struct drop *d;
	cJSON *json;
	char *text;

	make_model(&m, "plain", 32, 1, MIX_FULL);
	if (drop_parse(&d, "uniprefill:p=0.98,layers=7+11", &err) || drop_open(d, &m, &err))
		bail_out("%s", err.msg);
	json = drop_json(d);
	text = cJSON_PrintUnformatted(json);
	is_str(text,
	       "{\"name\":\"uniprefill\",\"p\":0.98,\"block\":64,\"last-q\":128,\"sinks\":128,"
	       "\"layers\":\"7+11\",\"mode\":\"official\",\"scores\":\"cache\","
	       "\"window-space\":\"compact\",\"crossing\":\"include\",\"min-tokens\":256,"
	       "\"rounding\":\"bf16\",\"reconstitute\":false}",
	       "parameters for the record");
	is_int(d->dropper->place, DROP_BEFORE_MLP, "uniprefill drops before the MLP");
	is_int(dropper_find("lazyllm")->place, DROP_AFTER_LAYER, "lazyllm after it");
	cJSON_free(text);
	cJSON_Delete(json);
	drop_free(d);
	model_release(&m);
}

/* ---- bands ---- */

/* Rows that one keeps and the other drops. */
static int more(const struct batch_case *c, const struct drop_kept *x, const struct drop_kept *y)
{
	int n = 0;

	for (int i = 0; i < c->b.rows.n_row; i++)
		n += x->keep[i] > y->keep[i];
	return n;
}

/* The reference keeps more and more from strict to loose, and leaves room between them. */
static void test_band(const struct dropper_band *b)
{
	int ctx[] = { 0, 0 }, rows[] = { 700, 300 };
	struct rng rng = { 7 };
	struct drop_kept strict, value, loose;
	struct batch_case c;

	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 4, 2, 64, 64 }, 2, ctx, rows);
	strict = drop_case_band(&c, b->text, b->strict);
	value = drop_case_band(&c, b->text, b->value);
	loose = drop_case_band(&c, b->text, b->loose);
	ok(!more(&c, &strict, &value) && !more(&c, &value, &loose) && more(&c, &loose, &strict) > 0,
	   "%s: %s keeps less than %s, and %s is between", b->text, b->strict, b->loose, b->value);
	drop_kept_free(&strict);
	drop_kept_free(&value);
	drop_kept_free(&loose);
	case_release(&c);
}

/* ---- faults ---- */

static enum ar_status make(const char *text, const struct model *m, struct ar_err *err)
{
	struct drop *d;
	enum ar_status st = drop_parse(&d, text, err);
	cJSON *params;

	if (st)
		return st;
	st = drop_open(d, m, err);
	params = st ? NULL : drop_json(d);
	if (!st && !params)
		st = ar_nomem(err);
	cJSON_Delete(params);
	drop_free(d);
	return st;
}

static void test_make_faults(const struct dropper_band *b)
{
	struct model m;
	char text[256];
	bool hit = true;
	int bad = 0, k = 0;

	make_model(&m, "plain", 1, 1, MIX_FULL);
	selector_text(text, sizeof text, b->text, b->value);
	for (; hit && k < 200; k++) {
		struct ar_err err;
		enum ar_status st;

		fault_arm(k);
		st = make(text, &m, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 5 && !hit, "%s: every allocation that fails is reported", text);
	model_release(&m);
}

static void test_ref_faults(const struct dropper_band *b)
{
	struct drop *d = drop_case_open(b->text, b->value);
	struct batch_case c;
	struct drop_kept x;
	bool hit = true;
	int bad = 0, k = 0;

	case_formula(&c, tiny, 200);
	case_cut(&c, (int[]){ 0 }, (int[]){ 200 });
	x = drop_kept_new(&c);
	for (; hit && k < 20; k++) {
		struct ar_err err;
		enum ar_status st;

		fault_arm(k);
		st = drop_case_try(&c, d->dropper->name, d->self, 200, &x, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 2 && !hit, "%s: so is every one of a call", d->name);
	drop_kept_free(&x);
	case_release(&c);
	drop_free(d);
}

static void test_revive_faults(void)
{
	struct lazyllm_self x = { { 1, { 0 }, { 0.5 } }, 4 };
	struct drop d = { .dropper = dropper_find("lazyllm"), .self = &x };
	uint8_t gone[24] = { 1, 1, 1 };
	int32_t n = 0, index[4];
	struct batch_case c;
	bool hit = true;
	int bad = 0, k = 0;

	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 23 }, (int[]){ 1 });
	for (; hit && k < 20; k++) {
		struct ar_err err;
		enum ar_status st;

		fault_arm(k);
		st = drop_revive_ref(&d,
				     &(struct drop_call){ .at = &(struct attn_call){ .b = &c.b,
										     .q = c.q,
										     .kv = c.kv } },
				     &(struct drop_revived){ gone, &n, index }, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 2 && !hit, "and of a choice of tokens to revive");
	ok(!drop_revives(NULL), "without a dropper none is revived");
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_index();
	test_parse();
	test_layers();
	test_params();
	for (int i = 0; droppers[i]; i++)
		for (const struct dropper_band *b = droppers[i]->band; b && b->text; b++) {
			test_band(b);
			test_make_faults(b);
			test_ref_faults(b);
		}
	test_revive_faults();
	return done_testing();
}
