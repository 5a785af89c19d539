/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a model, each a process that runs the whole simulation; with --ranks local all are
 * of this host.  Rank 0 prints and stores. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/number.h"
#include "replay/ranks/rank_id.h"
#include "src/run/rank_group.h"
#include "src/run/workers.h"

/* A launcher may have left each rank one GPU, which then has number 0. */
static enum ar_status take_device(const struct run_session *s, int local, int *device,
				  struct ar_err *err)
{
	const char *list = s->o.devices, *visible = getenv("CUDA_VISIBLE_DEVICES");
	const bool narrow = s->o.ranks == RUN_RANKS_ENV && visible && *visible &&
			    !strchr(visible, ',');
	int64_t n;

	*device = narrow ? 0 : local;
	if (list && rank_device(list, local, &n, device) && local >= n)
		return ar_fail(err, AR_USAGE,
			       "devices '%s' names %" PRId64 " GPUs, but this is rank %d of its "
			       "host, from 0; name one for each",
			       list, n, local);
	return AR_OK;
}

enum ar_status run_join_ranks(struct run_session *s, const struct world_join *join, int local,
			      struct ar_err *err)
{
	struct world_join j = *join;
	enum ar_status st = AR_OK;

	j.gpu = s->backend->uses_gpu;
	if (j.gpu)
		st = take_device(s, local, &j.device, err);
	if (!st)
		st = run_open_prof(s, s->backend, err);
	return st ? st : rank_join(&s->world, &j, err);
}

static enum ar_status check_devices(const struct run_options *o, const struct backend *b,
				    struct ar_err *err)
{
	int64_t n = 0;
	int device;

	if (!o->devices)
		return AR_OK;
	if (!b->uses_gpu)
		return ar_fail(err, AR_USAGE, "devices has no effect with backend %s; leave it out",
			       b->name);
	if (!rank_device(o->devices, 0, &n, &device))
		return ar_fail(err, AR_USAGE,
			       "devices '%s': want numbers and ranges such as 0,1 or 4-7",
			       o->devices);
	if (n != o->tp && o->ranks == RUN_RANKS_LOCAL)
		return ar_fail(err, AR_USAGE,
			       "devices '%s' names %" PRId64 " GPUs, but --tp %" PRId64
			       " has a rank on each; name as many",
			       o->devices, n, o->tp);
	return AR_OK;
}

/* Of rank 0, all shared. */
struct first_rank {
	bool ended;
	const struct backend *backend;
	int64_t num_blocks;
	struct run_outcome out;
};

struct rank_run {
	struct run *r;
	size_t i; /* of the method */
	struct first_rank *first;
};

static enum ar_status run_rank(void *self, const struct world_join *j, struct ar_err *err)
{
	struct rank_run *x = self;
	struct run_session *s = &x->r->session;
	enum ar_status st;

	if (j->rank)
		run_mute_rank(s);
	st = run_join_ranks(s, j, j->rank, err);
	if (!st)
		st = run_take_slices(&x->r->in, s, err);
	if (!st)
		st = run_method(x->r, x->i, err);
	run_leave_ranks(s, st);
	if (!j->rank)
		*x->first = (struct first_rank){ true, s->backend, x->r->in.limits.num_blocks,
						 x->r->out };
	return st;
}

void run_mute_rank(struct run_session *s)
{
	free(s->o.db);
	free(s->o.json);
	s->o.db = s->o.json = NULL;
	s->json.f = NULL;
	s->print = 0;
	s->muted = true;
	log_level = LOG_ERROR;
}

void run_leave_ranks(struct run_session *s, enum ar_status st)
{
	if (!s->world)
		return;
	s->all_know = st == AR_INTERRUPTED || world_has_ended(s->world);
	if (st && !s->all_know)
		world_stop(s->world);
	if (s->self)
		backend_leave(s->backend, s->self);
	world_close(s->world);
	s->world = NULL;
	free(s->rank_fact);
	s->rank_fact = NULL;
}

/* ---- what ranks know of each other ---- */

struct rank_facts {
	char host[64], gpu[128], backend[16]; /* gpu "": none */
	int64_t pid, device, num_blocks;      /* device -1: none */
};

static struct rank_facts my_facts(const struct run_inputs *in, const struct run_session *s)
{
	const struct store_gpu *gpu = backend_gpu(s->backend, s->self);
	struct rank_facts f = { .pid = getpid(),
				.device = world_device(s->world),
				.num_blocks = in->limits.num_blocks };

	gethostname(f.host, sizeof f.host - 1);
	snprintf(f.backend, sizeof f.backend, "%s", s->backend->name);
	snprintf(f.gpu, sizeof f.gpu, "%s", gpu ? gpu->name : "");
	return f;
}

static enum ar_status check_facts(const struct rank_facts *all, int n, struct ar_err *err)
{
	for (int i = 1; i < n; i++) {
		if (strcmp(all[i].backend, all->backend) != 0)
			return ar_fail(err, AR_USAGE,
				       "rank %d has backend %s, and rank 0 %s; name one in "
				       "--backend",
				       i, all[i].backend, all->backend);
		if (strcmp(all[i].gpu, all->gpu) != 0)
			log_warn("rank %d has another GPU than rank 0: %s, not %s; the slowest "
				 "rank moves the clock",
				 i, all[i].gpu, all->gpu);
	}
	return AR_OK;
}

enum ar_status run_meet_ranks(struct run_inputs *in, struct run_session *s, struct ar_err *err)
{
	struct rank_facts mine, *all;
	enum ar_status st;
	int n;

	if (!s->world)
		return AR_OK;
	n = world_size(s->world);
	s->rank_fact = all = calloc((size_t)n, sizeof *all);
	if (!all)
		return ar_nomem(err);
	mine = my_facts(in, s);
	st = world_gather(s->world, &mine, all, sizeof mine, err);
	if (!st)
		st = world_agree(s->world, check_facts(all, n, err));
	for (int i = 0; i < n && !st; i++)
		if (all[i].num_blocks < in->limits.num_blocks)
			in->limits.num_blocks = all[i].num_blocks;
	return st;
}

/* The times of hosts differ, and ranks with other times would schedule other batches. */
enum ar_status run_share_host(struct run_inputs *in, const struct run_session *s,
			      struct ar_err *err)
{
	struct host *all;
	enum ar_status st;

	if (!s->world)
		return AR_OK;
	all = calloc((size_t)world_size(s->world), sizeof *all);
	if (!all)
		return ar_nomem(err);
	st = world_gather(s->world, &in->host, all, sizeof *all, err);
	if (!st)
		in->host = all[0];
	free(all);
	return st;
}

enum ar_status run_time_barriers(struct run_session *s, struct ar_err *err)
{
	enum { ON_GPUS = 200, ON_HOSTS = 20 };
	const int n = s->backend->uses_gpu ? ON_GPUS : ON_HOSTS;
	const int ranks = s->world ? world_size(s->world) : 0;
	int64_t mine[ON_GPUS], *all;
	bool timed = false;
	enum ar_status st;

	s->barrier = (struct barrier_spread){ -1, -1 };
	if (!ranks)
		return AR_OK;
	st = backend_barriers(s->backend, s->self, n, mine, &timed, err);
	if (st || !timed)
		return st;
	all = calloc((size_t)ranks * (size_t)n, sizeof *all);
	if (!all)
		return ar_nomem(err);
	st = world_gather(s->world, mine, all, (size_t)n * sizeof *mine, err);
	if (!st)
		s->barrier = barrier_spread(all, ranks, n);
	free(all);
	return st;
}

enum ar_status run_put_ranks(const struct run_session *s, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; s->rank_fact && i < world_size(s->world) && !st; i++) {
		const struct rank_facts *f = &s->rank_fact[i];
		const struct row_run_rank row = { .rank = i,
						  .host = f->host,
						  .pid = f->pid,
						  .device = f->device,
						  .gpu = *f->gpu ? f->gpu : NULL };

		st = store_rank(s->store, &row, err);
	}
	return st;
}

const char *run_nccl_text(const struct run_session *s, char text[512])
{
	const struct nccl *nccl;
	char version[16];
	int n;

	if (!s->world || nccl_load(&nccl, NULL))
		return NULL;
	n = snprintf(text, 512, "%s", nccl_version_text(nccl->version, version));
	for (char **e = environ; *e && n < 512; e++)
		if (!strncmp(*e, "NCCL_", 5))
			n += snprintf(text + n, 512 - (size_t)n, " %s", *e);
	return text;
}

static void take_first(struct run *r, const struct first_rank *x)
{
	if (!x->ended) {
		run_fail_lost(&r->session);
		return;
	}
	r->session.backend = x->backend;
	r->in.limits.num_blocks = x->num_blocks;
	r->out = x->out;
}

enum ar_status run_method_ranks(struct run *r, size_t i, struct ar_err *err)
{
	const struct run_options *o = &r->session.o;
	const struct rank_group g = { (int)o->tp, o->comm_join_ns, o->comm_timeout_ns, false };
	struct rank_run x = { r, i, workers_share(sizeof *x.first) };
	enum ar_status st;

	if (!x.first)
		return ar_nomem(err);
	st = rank_group_run(&g, run_rank, &x, err);
	take_first(r, x.first);
	workers_unshare(x.first, sizeof *x.first);
	return st;
}

/* Options that have no effect without ranks; without those of a launcher, if env. */
static const struct rank_option {
	const char *name;
	bool env;
} rank_options[] = { { "comm-join", false },
		     { "comm-timeout", false },
		     { "devices", false },
		     { "rank", true },
		     { "nccl-id", true } };

static enum ar_status check_needless(const struct run_options *o, struct ar_err *err)
{
	for (size_t i = 0; i < sizeof rank_options / sizeof *rank_options; i++) {
		const struct rank_option *x = &rank_options[i];

		if (!opt_given(o->group, x->name) || o->ranks == RUN_RANKS_ENV ||
		    (o->ranks == RUN_RANKS_LOCAL && !x->env))
			continue;
		return ar_fail(err, AR_USAGE,
			       "%s has no effect without --ranks %senv; leave it out", x->name,
			       x->env ? "" : "local or ");
	}
	return AR_OK;
}

enum ar_status run_check_ranks(const struct run_options *o, const struct backend *b,
			       struct ar_err *err)
{
	const char *which = o->ranks == RUN_RANKS_ENV ? "env" : "local";
	enum ar_status st = check_needless(o, err);

	if (st || o->ranks == RUN_RANKS_ONE)
		return st;
	if (o->tp == 1)
		return ar_fail(err, AR_USAGE, "ranks %s has no effect with --tp 1; leave it out",
			       which);
	if (o->tp > RANKS_MAX)
		return ar_fail(err, AR_USAGE, "ranks %s: at most %d ranks; lower --tp", which,
			       RANKS_MAX);
	if (opt_given(o->group, "device"))
		return ar_fail(err, AR_USAGE,
			       "device has no effect with --ranks %s; give --devices", which);
	if (!b->uses_gpu && !getenv("ATTNREPLAY_NCCL"))
		return ar_fail(err, AR_USAGE,
			       "ranks %s: backend %s has its data in the memory of the host, "
			       "which NCCL does not reach; name a library that does in "
			       "ATTNREPLAY_NCCL",
			       which, b->name);
	return check_devices(o, b, err);
}
