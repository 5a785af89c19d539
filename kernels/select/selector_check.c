/* SPDX-License-Identifier: Apache-2.0 */
/* Members that a descriptor must have, by the selection that it gives. */
#include "config.h"
#include "kernels/select/selectors.h"

#include <string.h>

/* Names stand in methods, files and commands. */
static bool is_name(const char *s)
{
	return s && *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(s);
}

static bool params_fit(const struct selector *s)
{
	for (const struct opt *o = s->params; o->name; o++)
		if (o->off >= s->param_size)
			return false;
	return true;
}

static bool threshold_is_real(const struct selector *s)
{
	const struct opt *o = s->params;

	while (o->name && strcmp(o->name, s->threshold) != 0)
		o++;
	return o->name && o->type == OPT_REAL;
}

/* Whether the method has a place for each of n values, or no place and no value. */
static bool values_fit(const char *method, const char *const *value, int n)
{
	bool place = strchr(method, '%');

	for (int i = 0; i < n; i++)
		if (place != !!value[i])
			return false;
	return true;
}

static bool bands_fit(const struct selector *s)
{
	for (const struct selector_band *b = s->band; b->method; b++)
		if (!values_fit(b->method, &b->value, 1) || !b->strict != !b->loose ||
		    (b->strict && !b->value) || !(b->slack >= 0 && b->slack < 1))
			return false;
	return s->band->method;
}

static bool orders_fit(const struct selector *s)
{
	for (const struct selector_order *o = s->order; o->method; o++)
		if (!o->value[0] || !values_fit(o->method, o->value, SELECTOR_VALUES))
			return false;
	return s->order->method;
}

enum ar_status selector_check(const struct selector *s, struct ar_err *err)
{
	const struct {
		bool bad;
		const char *member, *want;
	} rules[] = {
		{ s->version != AR_SELECTOR_VERSION, "version", "want AR_SELECTOR_VERSION" },
		{ !is_name(s->name), "name", "want a word of a-z, 0-9 and '-'" },
		{ !s->title, "title", "say in one line which keys it keeps" },
		{ !s->origin, "origin", "say which paper or code it follows" },
		{ !s->params, "params", "want a table that ends with { 0 }" },
		{ s->params && !params_fit(s), "param_size",
		  "want the size of the struct that params set" },
		{ s->params && s->threshold && !threshold_is_real(s), "threshold",
		  "want the name of a parameter of type OPT_REAL" },
		{ s->gives && s->gives != SHAPE_TOKENS && s->gives != SHAPE_COLUMNS &&
			  s->gives != SHAPE_PIECES,
		  "gives", "want 0, SHAPE_TOKENS, SHAPE_COLUMNS or SHAPE_PIECES" },
		{ s->gives == SHAPE_COLUMNS && !s->columns, "columns",
		  "a selector that gives SHAPE_COLUMNS says how many runs and columns" },
		{ s->gives == SHAPE_PIECES && !s->pieces, "pieces",
		  "a selector that gives SHAPE_PIECES says how long its lists are" },
		{ s->gives == SHAPE_PIECES && !s->state_bytes != !s->append_ref, "append_ref",
		  "of decodes, state_bytes and append_ref go together" },
		{ s->append && !s->append_ref, "append_ref",
		  "kernels need a reference to be compared with" },
		{ s->enqueue && !s->ref, "ref", "kernels need a reference to be compared with" },
		{ s->work_bytes && !s->enqueue, "enqueue", "work_bytes is for kernels" },
		{ s->close && !s->open, "open", "close is for what open made" },
		{ s->ref && !s->work, "work",
		  "count FLOPs, bytes and launches, see kernels/select/work.h" },
		{ s->ref && !s->band, "band",
		  "give the methods for the comparison of kernels and reference" },
		{ s->band && !bands_fit(s), "band",
		  "want % where there is a value, both of strict and loose, slack below 1" },
		{ s->ref && !s->order, "order",
		  "give values of a parameter that keep more and more" },
		{ s->order && !orders_fit(s), "order", "want a method with % and a value each" },
	};

	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (rules[i].bad)
			return ar_fail(err, AR_USAGE, "selector '%s': .%s: %s",
				       s->name ? s->name : "", rules[i].member, rules[i].want);
	return AR_OK;
}
