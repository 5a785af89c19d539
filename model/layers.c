/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a model: made, compared and split. */
#include "config.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

enum ar_status model_set_layers(struct model *m, int n, const struct layer_spec *spec,
				struct ar_err *err)
{
	m->layer = malloc((size_t)n * sizeof *m->layer);
	if (!m->layer)
		return ar_nomem(err);
	m->n_layers = n;
	for (int i = 0; i < n; i++)
		m->layer[i] = *spec;
	return AR_OK;
}

int model_odd_layer(const struct model *m)
{
	for (int i = 1; i < m->n_layers; i++)
		if (memcmp(&m->layer[i], &m->layer[0], sizeof *m->layer) != 0)
			return i;
	return 0;
}

static enum ar_status check_split(const struct model *m, const struct layer_spec *l, int tp,
				  struct ar_err *err)
{
	const struct {
		const char *what;
		int n;
	} part[] = {
		{ "query heads", l->q_heads },
		{ l->n_experts ? "expert FFN width" : "FFN width", l->ffn },
		{ "vocabulary", m->vocab },
	};

	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (part[i].n % tp)
			return ar_fail(err, AR_USAGE,
				       "cannot split model '%s' into %d parts: %s %d "
				       "is no multiple of it; change --tp",
				       m->name, tp, part[i].what, part[i].n);
	if (l->kv_heads % tp && tp % l->kv_heads)
		return ar_fail(err, AR_USAGE,
			       "cannot split model '%s' into %d parts: %d KV heads "
			       "neither divide nor are divided by it; change --tp",
			       m->name, tp, l->kv_heads);
	return AR_OK;
}

static void split_layer(struct layer_spec *l, int tp)
{
	l->q_heads /= tp;
	l->kv_heads = l->kv_heads > tp ? l->kv_heads / tp : 1;
	l->ffn /= tp;
}

enum ar_status model_split(struct model *m, int tp, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (tp < 1 || m->tp != 1)
		return ar_fail(err, AR_USAGE, "cannot split model '%s' into %d parts", m->name, tp);
	for (int i = 0; i < m->n_layers && !st; i++)
		st = check_split(m, &m->layer[i], tp, err);
	if (st)
		return st;
	for (int i = 0; i < m->n_layers; i++)
		split_layer(&m->layer[i], tp);
	m->vocab /= tp;
	m->tp = tp;
	return AR_OK;
}
