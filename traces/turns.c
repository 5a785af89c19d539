/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/turns.h"

#include <stdlib.h>

bool turns_open(struct turns *s, const struct trace *t)
{
	*s = (struct turns){ .t = t,
			     .req = malloc((t->n + 1) * sizeof *s->req),
			     .first = calloc(t->n_session + 2, sizeof *s->first) };
	if (!s->req || !s->first)
		return false;
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].session >= 0)
			s->first[t->req[i].session + 2]++;
	for (size_t k = 2; k < t->n_session + 2; k++)
		s->first[k] += s->first[k - 1];
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].session >= 0)
			s->req[s->first[t->req[i].session + 1]++] = (uint32_t)i;
	return true;
}

void turns_close(struct turns *s)
{
	free(s->req);
	free(s->first);
}

uint32_t turns_first(const struct turns *s, int32_t session)
{
	size_t first = s->first[session];

	return first < s->first[session + 1] ? s->req[first] : TURNS_NONE;
}

uint32_t turns_last(const struct turns *s, int32_t session)
{
	size_t end = s->first[session + 1];

	return end > s->first[session] ? s->req[end - 1] : TURNS_NONE;
}

uint32_t turns_find(const struct turns *s, int32_t session, uint32_t turn)
{
	for (size_t k = s->first[session]; k < s->first[session + 1]; k++)
		if (s->t->req[s->req[k]].turn == turn)
			return s->req[k];
	return TURNS_NONE;
}
