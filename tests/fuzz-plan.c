/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the text of --method: a list of plans of layers, methods and droppers,
 * and as the parameters of each dropper.  Each text must be taken, or refused with a message.  A
 * plan that is taken is put on models whose layers are alike, and whose layers differ. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/plan.h"
#include "tests/fuzz.h"

const char fuzz_corpus[] = "plan";

static const struct model *models(size_t i)
{
	static const char *const names[] = { "llama-3.1-8b", "gpt-oss-20b" };
	static struct model m[2];
	struct ar_err err = { 0 };

	if (i < 2 && !m[i].n_layers)
		must(!model_load(&m[i], names[i], &err), err.msg);
	return i < 2 ? &m[i] : NULL;
}

static void drops(struct drop *d, const struct model *m)
{
	struct ar_err err = { 0 };

	if (drop_open(d, m, &err)) {
		told(&err);
		return;
	}
	for (int i = 0; i < m->n_layers; i++)
		must(!drop_acts_after(d, i) || m->layer[i].mixer == MIX_FULL,
		     "rows dropped after a layer without full attention");
}

static void lay(const struct plan *p, const struct model *m)
{
	struct layer_plan l;
	struct ar_err err = { 0 };

	if (plan_init(&l, p, m, &err))
		told(&err);
	for (int i = 0; i < m->n_layers && !err.status; i++)
		must((m->layer[i].mixer == MIX_FULL) == !!plan_method(&l, i),
		     "a layer without its method");
	plan_release(&l);
	if (p->drop)
		drops(p->drop, m);
}

static void as_plan(const char *text)
{
	struct ar_err err = { 0 };
	struct plan *p;

	if (plan_file(text)) /* fuzz-files has these */
		return;
	if (plan_parse(&p, text, &err)) {
		told(&err);
		return;
	}
	must(p->n_range && p->n_method && *p->params == '{', "a plan without a method");
	for (size_t i = 1; i < p->n_range; i++)
		must(p->range[i - 1].last >= 0 && p->range[i - 1].last < p->range[i].first,
		     "a plan whose ranges overlap");
	for (size_t i = 0; models(i); i++)
		lay(p, models(i));
	plan_free(p);
}

static void as_list(const char *text)
{
	struct ar_err err = { 0 };
	char **name = NULL;
	size_t n = 0;

	if (method_split(text, &name, &n, &err)) {
		told(&err);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		as_plan(name[i]);
		free(name[i]);
	}
	free(name);
}

static void as_dropper(const char *name, const char *parameters)
{
	struct ar_err err = { 0 };
	struct drop *d;
	char *text;

	must(asprintf(&text, "%s:%s", name, parameters) >= 0, "no memory");
	if (drop_parse(&d, text, &err))
		told(&err);
	for (size_t i = 0; models(i) && d; i++)
		drops(d, models(i));
	drop_free(d);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = strndup((const char *)data, n);

	must(text != NULL, "no memory");
	as_list(text);
	for (int i = 0; droppers[i]; i++)
		as_dropper(droppers[i]->name, text);
	free(text);
	return 0;
}
