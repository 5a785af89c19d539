/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/drop/layer_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Parse "7", or "10:0.5" where values are wanted. */
static bool parse_item(const char *s, size_t n, double most, int *layer, double *value)
{
	const char *colon = memchr(s, ':', n);
	size_t digits = colon ? (size_t)(colon - s) : n;
	char text[32];
	uint64_t x;

	if (!num_u64(s, digits, &x) || x > INT32_MAX || !colon != !most)
		return false;
	*layer = (int)x;
	*value = 0;
	if (!colon)
		return true;
	n -= digits + 1;
	if (n >= sizeof text)
		return false;
	memcpy(text, colon + 1, n);
	text[n] = 0;
	return num_real(text, value) && *value >= 0 && *value <= most;
}

enum ar_status layer_list_parse(struct layer_list *l, const char *text, double most,
				struct ar_err *err)
{
	l->n = 0;
	for (const char *s = text; s; s = strchr(s, '+') ? strchr(s, '+') + 1 : NULL) {
		int i = l->n++;

		if (i == LAYER_LIST_MAX ||
		    !parse_item(s, strcspn(s, "+"), most, &l->layer[i], &l->value[i]) ||
		    (i && l->layer[i] <= l->layer[i - 1]))
			return ar_fail(err, AR_USAGE,
				       most ? "layers '%s': want LAYER:VALUE+LAYER:VALUE..., "
					      "layers ascending and values from 0 to %g" :
					      "layers '%s': want LAYER+LAYER..., ascending",
				       text, most);
	}
	return AR_OK;
}

enum ar_status layer_list_read(struct layer_list *l, const char *text, double most,
			       const struct model *m, struct ar_err *err)
{
	enum ar_status st = layer_list_parse(l, text, most, err);

	for (int i = 0; i < l->n && !st; i++) {
		if (l->layer[i] >= m->n_layers)
			return ar_fail(err, AR_USAGE, "layer %d: model '%s' has %d layers",
				       l->layer[i], m->name, m->n_layers);
		if (m->layer[l->layer[i]].mixer != MIX_FULL)
			return ar_fail(err, AR_USAGE,
				       "layer %d of model '%s' is not one of full attention",
				       l->layer[i], m->name);
	}
	return st;
}

enum ar_status layer_list_read_or(struct layer_list *l, const char *text, const char *def,
				  const char *value, double most, const struct model *m,
				  struct ar_err *err)
{
	enum { DEFAULT_OF = 32 };

	if (!text && m->n_layers != DEFAULT_OF)
		return ar_fail(err, AR_USAGE,
			       "the default layers are for models of %d layers, but model '%s' has "
			       "%d: add layers=LAYER:%s+LAYER:%s...",
			       DEFAULT_OF, m->name, m->n_layers, value, value);
	return layer_list_read(l, text ? text : def, most, m, err);
}

int layer_list_find(const struct layer_list *l, int layer)
{
	for (int i = 0; i < l->n; i++)
		if (l->layer[i] == layer)
			return i;
	return -1;
}
