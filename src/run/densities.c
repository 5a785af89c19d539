/* SPDX-License-Identifier: Apache-2.0 */
/* Option --density: a list of METHOD=SHARE. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/number.h"
#include "kernels/methods/plan.h"
#include "replay/cost/backend_roofline.h"
#include "src/run/options.h"

const struct opt_list *run_options_densities(const struct run_options *o)
{
	return &((const struct roofline_options *)run_options_of(o, &backend_roofline))->density;
}

/* Whether the first n bytes of text are the METHOD=SHARE of a method that exists. */
static bool is_density(const char *text, size_t n)
{
	char *item = strndup(text, n), *eq = item ? strrchr(item, '=') : NULL;
	struct method *m = NULL;
	double share;
	bool is = eq && num_real(eq + 1, &share);

	if (is) {
		*eq = 0;
		is = !method_parse(&m, item, NULL);
	}
	method_free(m);
	free(item);
	return is;
}

/* The length of the first item of a list.  Parameters of a method have commas, too: a comma ends an
 * item where a method with its share is before it. */
static size_t first_item(const char *text)
{
	size_t n = strcspn(text, ",");

	while (text[n] && !is_density(text, n))
		n += 1 + strcspn(text + n + 1, ",");
	return n;
}

static enum ar_status add_item(struct opt_list *to, const char *text, size_t n, struct ar_err *err)
{
	if (!GROW(to->v, to->cap, to->n + 1) || !(to->v[to->n] = strndup(text, n)))
		return ar_nomem(err);
	to->n++;
	return AR_OK;
}

static enum ar_status add_items(struct opt_list *to, const char *text, struct ar_err *err)
{
	size_t n = first_item(text);
	enum ar_status st = add_item(to, text, n, err);

	while (!st && text[n]) {
		text += n + 1;
		n = first_item(text);
		st = add_item(to, text, n, err);
	}
	return st;
}

enum ar_status run_options_split_densities(struct run_options *o, struct ar_err *err)
{
	const struct opt_list *given = run_options_densities(o);
	struct opt_list item = { 0 };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < given->n && !st; i++)
		st = add_items(&item, given->v[i], err);
	if (!st && item.n > given->n)
		st = opt_set_list(o->group, "density", item.v, item.n, err);
	for (size_t i = 0; i < item.n; i++)
		free(item.v[i]);
	free(item.v);
	return st;
}

bool run_options_density_used(const char *density, char *const *method, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (roofline_density_is_of(density, method[i]))
			return true;
	return false;
}

enum ar_status run_options_keep_densities(struct run_options *o, char *const *method, size_t n,
					  struct ar_err *err)
{
	const struct opt_list *given = run_options_densities(o);
	char **kept = calloc(given->n + 1, sizeof *kept);
	size_t n_kept = 0;
	enum ar_status st = AR_OK;

	if (!kept)
		return ar_nomem(err);
	for (size_t i = 0; i < given->n; i++)
		if (run_options_density_used(given->v[i], method, n))
			kept[n_kept++] = given->v[i];
	if (n_kept < given->n)
		st = opt_set_list(o->group, "density", kept, n_kept, err);
	free(kept);
	return st;
}
