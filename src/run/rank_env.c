/* SPDX-License-Identifier: Apache-2.0 */
/* --ranks env: this process is one of the ranks, which a launcher has started. */
#include "config.h"
#include "src/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "replay/ranks/hello.h"
#include "replay/ranks/rank_id.h"

static enum ar_status ask_place(struct run_session *s, struct ar_err *err)
{
	const int tp = (int)s->o.tp;
	enum ar_status st;

	if (opt_given(s->o.group, "rank")) {
		s->place = (struct launched_rank){ "--rank", (int)s->o.rank, tp, -1, "" };
		return s->o.rank < tp ?
			       AR_OK :
			       ar_fail(err, AR_USAGE, "rank %d: want 0 to %d, as --tp is %d",
				       (int)s->o.rank, tp - 1, tp);
	}
	st = launcher_ask(&s->place, err);
	if (!st && s->place.size != tp)
		st = ar_fail(err, AR_USAGE,
			     "%s started %d ranks, but --tp is %d; give equal numbers",
			     s->place.launcher, s->place.size, tp);
	return st;
}

/* Set the file by which ranks find each other, unless there is a variable for that. */
static enum ar_status name_file(struct run_session *s, struct ar_err *err)
{
	if (!s->o.nccl_id && getenv("NCCL_COMM_ID"))
		return AR_OK;
	if (!s->o.nccl_id && !s->o.db)
		return ar_fail(err, AR_USAGE,
			       "ranks env: the ranks need a file by which they find each other; "
			       "name one in --nccl-id, or set NCCL_COMM_ID to HOST:PORT of rank 0");
	if (asprintf(&s->id_file, "%s%s", s->o.nccl_id ? s->o.nccl_id : s->o.db,
		     s->o.nccl_id ? "" : ".ncclid") >= 0)
		return AR_OK;
	s->id_file = NULL;
	return ar_nomem(err);
}

enum ar_status run_find_rank(struct run_session *s, struct ar_err *err)
{
	enum ar_status st;

	if (s->o.ranks != RUN_RANKS_ENV)
		return AR_OK;
	st = ask_place(s, err);
	if (!st)
		st = name_file(s, err);
	if (!st && s->place.rank)
		log_level = LOG_ERROR;
	return st;
}

/* All ranks have the same options, inputs and library. */
static enum ar_status compare_commands(struct run *r, size_t i, struct ar_err *err)
{
	char *lines = NULL, *text = NULL, version[16];
	const struct nccl *nccl;
	enum ar_status st = nccl_load(&nccl, err);

	if (!st)
		st = run_make_lines(&r->in, &r->session, i, &lines, err);
	if (!st &&
	    asprintf(&text, "NCCL=%s\n%s", nccl_version_text(nccl->version, version), lines) < 0) {
		text = NULL;
		st = ar_nomem(err);
	}
	if (!st)
		st = hello_same(r->session.world, text, err);
	free(text);
	free(lines);
	return st;
}

static enum ar_status run_as_rank(struct run *r, size_t i, struct ar_err *err)
{
	struct run_session *s = &r->session;
	const struct rank_meeting meeting = { s->id_file, s->place.key };
	const struct world_join join = { .rank = s->place.rank,
					 .size = s->place.size,
					 .join_ns = s->o.comm_join_ns,
					 .timeout_ns = s->o.comm_timeout_ns,
					 .meeting = &meeting };
	const int local = s->place.local < 0 ? s->place.rank : s->place.local;
	enum ar_status st = run_join_ranks(s, &join, local, err);

	if (!st)
		st = compare_commands(r, i, err);
	return st ? st : run_method(r, i, err);
}

enum ar_status run_method_here(struct run *r, size_t i, struct ar_err *err)
{
	struct run_session *s = &r->session;
	enum ar_status st;

	if (s->o.ranks != RUN_RANKS_ENV)
		return run_method(r, i, err);
	st = run_as_rank(r, i, err);
	run_leave_ranks(s, st);
	if (st && s->place.rank && s->all_know)
		err->msg[0] = 0; /* rank 0 says it */
	return st;
}
