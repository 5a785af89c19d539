/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_spans.h"

#include <stdlib.h>

#include "base/grow.h"

static bool follows(const struct request_span *s, int64_t iter_no, const struct store_entry *e)
{
	const struct store_entry *f = &s->first;

	return iter_no == s->iter_no + s->n && s->n < SPAN_MAX && e->n_tok == f->n_tok &&
	       e->start == f->start + s->n * f->n_tok && e->chunk_no == f->chunk_no + s->n &&
	       e->decode == f->decode && e->emit == f->emit && e->recompute == f->recompute;
}

static bool grow_last(struct request_spans *s, uint32_t req)
{
	const size_t before = s->cap_last;

	if (!GROW(s->last, s->cap_last, (size_t)req + 1))
		return false;
	for (size_t i = before; i < s->cap_last; i++)
		s->last[i] = 0;
	return true;
}

bool spans_add(struct request_spans *s, int64_t iter_no, const struct store_entry *e)
{
	if (!grow_last(s, e->req))
		return false;
	if (s->last[e->req]) {
		struct request_span *old = &s->span[s->last[e->req] - 1];

		if (follows(old, iter_no, e)) {
			old->n++;
			return true;
		}
	}
	if (!GROW(s->span, s->cap, s->n + 1))
		return false;
	s->span[s->n++] = (struct request_span){ .first = *e, .iter_no = iter_no, .n = 1 };
	s->last[e->req] = (uint32_t)s->n;
	return true;
}

void spans_stored(struct request_spans *s, int64_t iter_no)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct request_span *x = &s->span[i];
		uint32_t *last = &s->last[x->first.req];

		x->n_stored = x->n;
		if (x->iter_no + x->n > iter_no) {
			s->span[kept++] = *x;
			*last = (uint32_t)kept;
		} else if (*last == i + 1) {
			*last = 0;
		}
	}
	s->n = kept;
}

void spans_clear(struct request_spans *s)
{
	spans_stored(s, INT64_MAX);
}

void spans_release(struct request_spans *s)
{
	free(s->span);
	free(s->last);
	*s = (struct request_spans){ 0 };
}
