/* SPDX-License-Identifier: Apache-2.0 */
/* Merging two traces, a and b, whose blocks and sessions stay apart.  So blocks get new numbers,
 * and sessions of b new names. */
#include "config.h"
#include "traces/algebra/merge.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "traces/algebra/renumber.h"
#include "traces/intern.h"

static enum ar_status check_merge(const struct trace *a, const struct trace *b,
				  enum trace_align align, struct ar_err *err)
{
	if (a->block_tok && b->block_tok && a->block_tok != b->block_tok)
		return ar_fail(err, AR_USAGE,
			       "%s has prefix blocks of %u tokens, %s of %u; they cannot be merged",
			       a->name, a->block_tok, b->name, b->block_tok);
	if (align == ALIGN_CLOCK && !(a->has_epoch && b->has_epoch))
		return ar_fail(err, AR_USAGE, "%s has no dates; merge it with --align start",
			       a->has_epoch ? b->name : a->name);
	if (a->n_session + b->n_session > INT32_MAX || a->n_type + b->n_type > INT32_MAX)
		return ar_nomem(err);
	return AR_OK;
}

/* Intern names[0..n) and then more[0..n_more) in *all; more[i] gets number map[i].  apart: a name
 * in more that is taken is replaced by a new one. */
static bool join_names(struct intern_table *all, char ***names, size_t n, char *const *more,
		       size_t n_more, bool apart, uint32_t *map)
{
	bool done = true;
	uint32_t number;

	for (size_t i = 0; i < n && done; i++)
		done = intern_put(all, (*names)[i], strlen((*names)[i]), &number);
	for (size_t i = 0; i < n_more && done; i++) {
		if (apart) {
			done = intern_put_new(all, more[i], 1);
			map[i] = (uint32_t)all->n - 1;
		} else {
			done = intern_put(all, more[i], strlen(more[i]), &map[i]);
		}
	}
	return done;
}

static bool append(cJSON *list, const cJSON *more)
{
	const cJSON *e;

	cJSON_ArrayForEach(e, more)
		if (!json_add(list, NULL, cJSON_Duplicate(e, 1)))
			return false;
	return true;
}

void trace_merge_sum(char sum[65], const char *with)
{
	char both[2 * 65];

	snprintf(both, sizeof both, "%s%s", sum, with);
	SHA256Data((const uint8_t *)both, strlen(both), sum);
}

/* Name the merged trace "a+b"; its sha256 is a hash of both hashes. */
static enum ar_status join_history(struct trace *a, const struct trace *b, struct ar_err *err)
{
	cJSON *all = trace_sources(a), *more = trace_sources(b);
	size_t size = strlen(a->name) + strlen(b->name) + 2;
	char *name = malloc(size), *format = strdup("merged");
	bool done = all && more && name && format && append(all, more) &&
		    append(a->transforms, b->transforms);

	cJSON_Delete(more);
	if (!done) {
		cJSON_Delete(all);
		free(name);
		free(format);
		return ar_nomem(err);
	}
	cJSON_Delete(a->sources);
	a->sources = all;
	trace_merge_sum(a->sha256, b->sha256);
	snprintf(name, size, "%s+%s", a->name, b->name);
	free(a->name);
	a->name = name;
	free(a->format);
	a->format = format;
	return trace_note(a, err, "merge=%s", b->name);
}

/* Merge the requests in order of arrival, with offset[] added; at equal arrivals a goes first.
 * session, type: new numbers of the sessions and types of b. */
static bool join_requests(struct trace *out, const struct trace *a, const struct trace *b,
			  const int64_t offset[2], const uint32_t *session, const uint32_t *type)
{
	struct chain ids = { 0 };
	size_t i = 0, j = 0;
	bool done = true;

	while (done && i + j < a->n + b->n) {
		bool first = j == b->n || (i < a->n && a->req[i].arrival_ns + offset[0] <=
							       b->req[j].arrival_ns + offset[1]);
		struct request q = first ? a->req[i++] : b->req[j++];

		q.arrival_ns += offset[!first];
		if (!first && q.session >= 0)
			q.session = (int32_t)session[q.session];
		if (!first && q.type)
			q.type = type[q.type - 1] + 1;
		done = blocks_put(out, &q, first ? a : b, !first, &ids);
		out->req[out->n++] = q;
	}
	chain_release(&ids);
	return done;
}

/* The links of both; session: new numbers of the sessions of b.  NULL: no memory. */
static struct session_link *join_links(const struct trace *a, const struct trace *b,
				       const uint32_t *session)
{
	struct session_link *all = malloc((a->n_session + b->n_session + 1) * sizeof *all);

	for (size_t s = 0; all && s < a->n_session; s++)
		all[s] = a->link ? a->link[s] : session_link_none;
	for (size_t s = 0; all && s < b->n_session; s++) {
		all[session[s]] = b->link ? b->link[s] : session_link_none;
		if (all[session[s]].parent >= 0)
			all[session[s]].parent = (int32_t)session[all[session[s]].parent];
	}
	return all;
}

/* Find how far arrivals of a and of b move to be on one time axis, which begins at *epoch. */
static enum ar_status offsets(const struct trace *a, const struct trace *b, enum trace_align align,
			      int64_t offset[2], int64_t *epoch, struct ar_err *err)
{
	*epoch = 0;
	offset[0] = offset[1] = 0;
	if (align == ALIGN_START)
		return AR_OK;
	*epoch = a->epoch_ns < b->epoch_ns ? a->epoch_ns : b->epoch_ns;
	offset[0] = a->epoch_ns - *epoch;
	offset[1] = b->epoch_ns - *epoch;
	return trace_check_end(&(struct trace){ .epoch_ns = *epoch },
			       fmax((double)a->req[a->n - 1].arrival_ns + (double)offset[0],
				    (double)b->req[b->n - 1].arrival_ns + (double)offset[1]),
			       err);
}

enum ar_status trace_merge(struct trace *a, const struct trace *b, enum trace_align align,
			   struct ar_err *err)
{
	uint32_t *session = calloc(b->n_session + 1, sizeof *session);
	uint32_t *type = calloc(b->n_type + 1, sizeof *type);
	struct intern_table sessions = { 0 }, types = { 0 };
	struct trace both = { 0 };
	int64_t offset[2], epoch;
	enum ar_status st = check_merge(a, b, align, err);

	if (!st)
		st = offsets(a, b, align, offset, &epoch, err);
	if (st)
		goto out;
	both.req = calloc(a->n + b->n, sizeof *both.req);
	if (!session || !type || !both.req ||
	    !join_names(&sessions, &a->session, a->n_session, b->session, b->n_session, true,
			session) ||
	    !join_names(&types, &a->type, a->n_type, b->type, b->n_type, false, type) ||
	    !join_requests(&both, a, b, offset, session, type))
		st = ar_nomem(err);
	if (!st && (a->link || b->link)) {
		both.link = join_links(a, b, session);
		st = both.link ? AR_OK : ar_nomem(err);
	}
	if (!st)
		st = join_history(a, b, err);
	if (st)
		goto out;
	intern_take(&a->session, &a->n_session, &sessions);
	intern_take(&a->type, &a->n_type, &types);
	free(a->req);
	free(a->run);
	free(a->link);
	a->req = both.req;
	a->n = both.n;
	a->run = both.run;
	a->n_run = both.n_run;
	a->cap_run = both.cap_run;
	a->link = both.link;
	both = (struct trace){ 0 };
	if (!a->block_tok)
		a->block_tok = b->block_tok;
	a->has_epoch = align == ALIGN_CLOCK;
	a->epoch_ns = epoch;
out:
	intern_release(&sessions);
	intern_release(&types);
	free(both.req);
	free(both.run);
	free(both.link);
	free(session);
	free(type);
	return st;
}
