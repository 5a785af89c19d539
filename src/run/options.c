#include "config.h"
#include "src/run/options.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "src/report/slo.h"

#define AT(field) offsetof(struct run_options, field)

static const char *const clocks[] = { "measured", "formula", NULL };
static const char *const loops[] = { "open", "sessions", "users", NULL };
static const char *const profs[] = { "activity", "events", NULL };
static const char *const orders[] = { "fcfs", "priority", NULL };
static const char *const chunkings[] = { "fcfs", "equal", NULL };
static const char *const extends[] = { "error", "tile", NULL };
static const char *policy_names[RUN_POLICIES_MAX + 1];	/* set_groups() fills them in */

static const char *const no_yes[] = { "no", "yes", NULL };

static const struct opt main_opts[] = {
	{ "trace", OPT_STR, AT(trace), "FILE", NULL, 0, 0, NULL,
	  "request trace to replay, - for standard input", 0 },
	{ "loop", OPT_ENUM, AT(arrival.loop), "HOW", "open", 0, 0, loops,
	  "when requests arrive: at the times of the trace, after the request before in their "
	  "session, or as users get answers", 0 },
	{ "users", OPT_INT, AT(arrival.users), "N", "1", 1, 1 << 30, NULL,
	  "users of --loop users, who take the sessions in turn", 0 },
	{ "think-time", OPT_TIME, AT(arrival.think_ns), "TIME", "0", 0, 3.6e18, NULL,
	  "pause of a user after an answer, where the trace has none", 0 },
	{ "policy", OPT_ENUM, AT(policy), "NAME", "vllm-0.16", 0, 0, policy_names,
	  "scheduling rules, those of an engine at a version", 0 },
	{ "backend", OPT_STR, AT(backend), "NAME", "auto", 0, 0, NULL,
	  "what runs an iteration: cuda, cpu or cost; auto takes cuda where there is a GPU, "
	  "else cpu", 0 },
	{ "db", OPT_STR, AT(db), "FILE", NULL, 0, 0, NULL,
	  "database that the runs are added to, else nothing is stored", 0 },
	{ "keep-entries", OPT_ENUM, AT(keep_entries), "no|yes", "yes", 0, 0, no_yes,
	  "store what each request ran in each iteration, most of the database's size", 0 },
	{ "slo", OPT_STR, AT(slo), "LIST", NULL, 0, 0, NULL,
	  "limits that a request should keep, such as ttft:500ms,tpot:50ms,e2e:10s, for the report",
	  0 },
	{ "clock", OPT_ENUM, AT(clock), "WHAT", "measured", 0, 0, clocks,
	  "what moves the virtual clock: measured iterations, or the cost formula while the "
	  "backend still runs", 0 },
	{ "host-overhead", OPT_TIME, AT(host.fixed_ns), "TIME", "0", 0, 3.6e12, NULL,
	  "host time added to each iteration", 0 },
	{ "host-overhead-per-request", OPT_TIME, AT(host.per_request_ns), "TIME", "0", 0, 1e9, NULL,
	  "host time added to an iteration for each request in it", 0 },
	{ "host-overhead-per-token", OPT_TIME, AT(host.per_tok_ns), "TIME", "0", 0, 1e9, NULL,
	  "host time added to an iteration for each of its tokens", 0 },
	{ "job", OPT_JOB, 0, "FILE", NULL, 0, 0, NULL,
	  "read options from a file, one 'name = value' a line", 0 },
	{ 0 }
};

static const struct opt sched_opts[] = {
	{ "max-num-batched-tokens", OPT_INT, AT(limits.max_batched_tok), "N", "8192", 1, 1 << 30,
	  NULL, "token budget of an iteration: the chunk size under load", 0 },
	{ "max-num-seqs", OPT_INT, AT(limits.max_seqs), "N", "256", 1, 1 << 20, NULL,
	  "running requests at a time, at most the token budget", 0 },
	{ "block-size", OPT_INT, AT(limits.block_tok), "N", "16", 1, 1 << 20, NULL,
	  "tokens of a KV block", 0 },
	{ "num-gpu-blocks", OPT_STR, AT(num_blocks), "N|auto", "auto", 0, 0, NULL,
	  "KV blocks in the pool, one of them reserved; auto takes what fits the device, or what "
	  "the trace can use where there is none", 0 },
	{ "long-prefill-token-threshold", OPT_INT, AT(limits.long_prefill_tok), "N", "0", 0,
	  1 << 30, NULL, "most tokens of one request in an iteration, 0: no limit", 0 },
	{ "enable-prefix-caching", OPT_FLAG, AT(limits.prefix_cache), NULL, NULL, 0, 0, NULL,
	  "keep KV blocks of finished and preempted requests and share those of equal prefixes",
	  0 },
	{ "scheduling-policy", OPT_ENUM, AT(limits.order), "ORDER", "fcfs", 0, 0, orders,
	  "who waits at the head of the queue and who is preempted: by arrival or by priority", 0 },
	{ "chunk-policy", OPT_ENUM, AT(limits.chunks), "HOW", "fcfs", 0, 0, chunkings,
	  "how prompts share a budget: each in turn takes what is left, or a block each in turn",
	  0 },
	{ "watermark", OPT_REAL, AT(limits.watermark), "SHARE", NULL, 0, 0.99, NULL,
	  "share of the KV blocks that admissions leave free; the policy's own when not given", 0 },
	{ "async-scheduling", OPT_FLAG, AT(limits.async), NULL, NULL, 0, 0, NULL,
	  "plan an iteration while the one before still runs", 0 },
	{ "max-model-len", OPT_INT, AT(limits.max_len), "N", "0", 0, UINT32_MAX, NULL,
	  "most tokens of a request, prompt and output, 0: the model's, if any", 0 },
	{ 0 }
};

static const struct opt model_opts[] = {
	{ "model", OPT_STR, AT(model), "NAME", NULL, 0, 0, NULL,
	  "preset, config.json, or folder with one", 0 },
	{ "tp", OPT_INT, AT(tp), "N", "1", 1, 1024, NULL,
	  "tensor parallel ranks, of which one is run", 0 },
	{ "capture", OPT_LIST, AT(captures), "FILE", NULL, 0, 0, NULL,
	  "captured Q, K and V to replay, once for each file", 0 },
	{ "method", OPT_STR, AT(methods), "LIST", "dense", 0, 0, NULL,
	  "methods separated by commas, each a run of its own", 0 },
	{ "layers", OPT_STR, AT(layers), "LIST", NULL, 0, 0, NULL,
	  "captured layers to use, such as 0,4,8-11, else all of them", 0 },
	{ "sample-layers", OPT_INT, AT(sample_layers), "K", "0", 0, 100000, NULL,
	  "layers of the model to execute and scale to all, evenly spaced, 0: all", 0 },
	{ "extend", OPT_ENUM, AT(extend), "HOW", "error", 0, 0, extends,
	  "what a request longer than every capture gets: an error, or a capture repeated", 0 },
	{ "share-kv-across-methods", OPT_FLAG, AT(share_kv), NULL, NULL, 0, 0, NULL,
	  "name cached KV blocks by their tokens alone, not also by the method that computed them",
	  0 },
	{ "accuracy", OPT_REAL, AT(accuracy), "SHARE", "0.05", 0, 1, NULL,
	  "share of (request, prefill chunk, layer) compared with dense attention", 0 },
	{ "attention-only", OPT_FLAG, AT(attention_only), NULL, NULL, 0, 0, NULL,
	  "leave out projections, MLP and head", 0 },
	{ "seed", OPT_INT, AT(seed), "N", "0", 0, 9e15, NULL,
	  "seed of capture assignment and accuracy samples", 0 },
	{ 0 }
};

static const struct opt gpu_opts[] = {
	{ "prof", OPT_ENUM, AT(prof), "HOW", "activity", 0, 0, profs,
	  "how time is taken: of each kernel by CUPTI, or of iterations by CUDA events", 0 },
	{ "keep-kernels", OPT_INT, AT(keep_kernels), "N", "1", 0, 1 << 30, NULL,
	  "store the kernels of every Nth iteration, 0: none", 0 },
	{ 0 }
};

static void set_groups(struct run_options *o)
{
	struct opt_group *g = o->group;

	for (int i = 0; policies[i]; i++) {
		assert(i < RUN_POLICIES_MAX);
		policy_names[i] = policies[i]->name;
	}
	g[RUN_GROUP_MAIN] = (struct opt_group){ "Run", main_opts, o, 0, 0 };
	g[RUN_GROUP_TRACE] = (struct opt_group){ "Trace", trace_opts, &o->trace_args, 0, 0 };
	g[RUN_GROUP_SCHED] = (struct opt_group){ "Scheduler", sched_opts, o, 0, 0 };
	g[RUN_GROUP_MODEL] =
		(struct opt_group){ "Model, captures and methods", model_opts, o, 0, 0 };
	g[RUN_GROUP_GPU] = (struct opt_group){ "Profiling on a GPU", gpu_opts, o, 0, 0 };
	g += RUN_GROUP_BACKEND;
	for (int i = 0; backends[i]; i++) {
		static const struct opt none[] = { { 0 } };

		assert(i < RUN_BACKENDS_MAX);
		snprintf(o->title[i], sizeof o->title[i], "Backend %s: %s", backends[i]->name,
			 backends[i]->title);
		g[i] = (struct opt_group){ o->title[i],
					   backends[i]->opts ? backends[i]->opts : none,
					   o->backend_opts[i], 0, 0 };
	}
}

void run_options_show(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct run_options o = { 0 };

	set_groups(&o);
	for (const struct opt_group *g = o.group; g->opts; g++)
		if (g->opts->name)
			show((const struct opt_group[]){ *g, { 0 } }, f);
}

/* The budget must serve every running request at least one token, else some starve. */
static enum ar_status check_limits(struct run_options *o, struct ar_err *err)
{
	struct sched_limits *l = &o->limits;

	if (strcmp(o->num_blocks, "auto") &&
	    (!num_count(o->num_blocks, &l->num_blocks) || l->num_blocks < 2 ||
	     l->num_blocks > UINT32_MAX))
		return ar_fail(err, AR_USAGE,
			       "num-gpu-blocks '%s': want auto or an integer from 2 to %u",
			       o->num_blocks, UINT32_MAX);
	if (l->max_seqs <= l->max_batched_tok)
		return AR_OK;
	if (opt_given(o->group, "max-num-seqs"))
		return ar_fail(err, AR_USAGE,
			       "max-num-seqs %" PRId64 " exceeds max-num-batched-tokens "
			       "%" PRId64 "; running requests would starve",
			       l->max_seqs, l->max_batched_tok);
	l->max_seqs = l->max_batched_tok;
	return AR_OK;
}

static enum ar_status check_names(const struct run_options *o, struct ar_err *err)
{
	char all[256] = "";
	size_t n = 0;

	if (!o->trace)
		return ar_fail(err, AR_USAGE, "no trace given; name one with --trace FILE");
	if (!HAVE_CUDA && !strcmp(o->backend, "cuda"))
		return ar_fail(err, AR_NODEV, "backend cuda: this program was built without CUDA; "
			       "use --backend cpu or cost, or build it with CUDA");
	if (opt_given(o->group, "costs") && strcmp(o->backend, "cost"))
		return ar_fail(err, AR_USAGE,
			       "costs are for --backend cost; add it or leave them out");
	if (strcmp(o->backend, "auto") && !backend_find(o->backend)) {
		for (int i = 0; backends[i] && n < sizeof all; i++)
			n += (size_t)snprintf(all + n, sizeof all - n, ", %s", backends[i]->name);
		return ar_fail(err, AR_USAGE, "unknown backend '%s'; this program has auto%s",
			       o->backend, all);
	}
	return AR_OK;
}

static enum ar_status refuse_one(const struct run_options *o, const char *name, const char *why,
				 struct ar_err *err)
{
	if (!opt_given(o->group, name))
		return AR_OK;
	return ar_fail(err, AR_USAGE, "%s has no effect %s; leave it out", name, why);
}

static enum ar_status check_loop(const struct run_options *o, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (o->arrival.loop != LOOP_USERS)
		st = refuse_one(o, "users", "without --loop users", err);
	if (!st && o->arrival.loop == LOOP_OPEN)
		st = refuse_one(o, "think-time", "with --loop open", err);
	return st;
}

/* Settings that only some policies know. */
static enum ar_status check_policy(struct run_options *o, struct ar_err *err)
{
	static const struct { const char *name; unsigned bit; } settings[] = {
		{ "long-prefill-token-threshold", POLICY_LONG_PREFILL },
		{ "enable-prefix-caching", POLICY_PREFIX_CACHE },
		{ "scheduling-policy", POLICY_ORDER },
		{ "chunk-policy", POLICY_CHUNKS },
		{ "watermark", POLICY_WATERMARK },
		{ "async-scheduling", POLICY_ASYNC },
	};
	struct sched_limits *l = &o->limits;
	const struct policy *p = l->policy = policies[o->policy];

	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (opt_given(o->group, settings[i].name) && !(p->can & settings[i].bit))
			return ar_fail(err, AR_USAGE, "%s has no effect with policy %s; leave it "
				       "out", settings[i].name, p->name);
	if (!opt_given(o->group, "watermark"))
		l->watermark = p->watermark;
	return p->check ? p->check(l, err) : AR_OK;
}

enum ar_status run_options_parse(struct run_options *o, int argc, char **argv, struct ar_err *err)
{
	struct slo slo;
	enum ar_status st;

	*o = (struct run_options){ 0 };
	for (int i = 0; backends[i]; i++) {
		o->backend_opts[i] = calloc(1, backends[i]->opts_size + 1);
		if (!o->backend_opts[i])
			return ar_nomem(err);
	}
	set_groups(o);
	st = opt_init(o->group, err);
	if (!st)
		st = opt_parse(o->group, &argc, argv, err);
	if (!st && argc)
		st = ar_fail(err, AR_USAGE,
			     "unexpected operand '%s'; the trace is given with --trace", argv[0]);
	if (!st)
		st = check_names(o, err);
	if (!st && o->slo)
		st = slo_parse(&slo, o->slo, err);
	if (!st)
		st = check_loop(o, err);
	if (!st)
		st = check_policy(o, err);
	return st ? st : check_limits(o, err);
}

void run_options_release(struct run_options *o)
{
	opt_release(o->group);
	for (int i = 0; i < RUN_BACKENDS_MAX; i++)
		free(o->backend_opts[i]);
	*o = (struct run_options){ 0 };
}

const void *run_options_of(const struct run_options *o, const struct backend *b)
{
	for (int i = 0; backends[i]; i++)
		if (backends[i] == b)
			return o->backend_opts[i];
	return NULL;
}

/* An error if any option of group g was given; why follows its name. */
static enum ar_status refuse(const struct opt_group *g, const char *why, const char *what,
			     struct ar_err *err)
{
	uint64_t given = g->given | g->from_job;

	for (int i = 0; g->opts[i].name; i++)
		if (given & 1ull << i)
			return ar_fail(err, AR_USAGE, "%s has no effect %s%s; leave it out",
				       g->opts[i].name, why, what);
	return AR_OK;
}

/* A table of costs has the model's options adopted, see below, save those that only measuring
 * needs. */
static enum ar_status check_cost(const struct run_options *o, struct ar_err *err)
{
	static const char *const unused[] = { "capture", "accuracy", "seed" };
	static const char *const formula[] = { "cost-fixed", "cost-per-token", "clock" };
	enum ar_status st = AR_OK;

	if (!opt_given(o->group, "costs")) {
		st = refuse(&o->group[RUN_GROUP_MODEL], "with backend ", "cost", err);
		return st ? st : refuse_one(o, "costs-extrapolate", "without --costs", err);
	}
	for (size_t i = 0; i < sizeof unused / sizeof *unused && !st; i++)
		st = refuse_one(o, unused[i], "with backend cost", err);
	for (size_t i = 0; i < sizeof formula / sizeof *formula && !st; i++)
		st = refuse_one(o, formula[i], "with --costs", err);
	return st;
}

enum ar_status run_options_check(const struct run_options *o, const struct backend *b,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (b == &backend_cost)
		st = check_cost(o, err);
	else if (!b->needs_model)
		st = refuse(&o->group[RUN_GROUP_MODEL], "with backend ", b->name, err);
	if (!st && !b->uses_gpu)
		st = refuse(&o->group[RUN_GROUP_GPU], "with backend ", b->name, err);
	for (int i = 0; backends[i] && !st; i++) {
		const struct opt_group *g = &o->group[RUN_GROUP_BACKEND + i];

		if (backends[i] == b)
			continue;
		if (backends[i] != &backend_cost)
			st = refuse(g, "with backend ", b->name, err);
		else if (o->clock != RUN_CLOCK_FORMULA)
			st = refuse(g, "with --clock ", clocks[o->clock], err);
	}
	if (!st && b == &backend_cost && o->clock == RUN_CLOCK_MEASURED)
		st = refuse_one(o, "clock", "as 'measured' with backend cost", err);
	if (!st && !o->limits.prefix_cache)
		st = refuse_one(o, "share-kv-across-methods", "without --enable-prefix-caching",
				err);
	if (!st && b->needs_model && !b->compare)
		st = refuse_one(o, "accuracy", "with a backend that computes no reference", err);
	if (!st && !o->db)
		st = refuse_one(o, "slo", "without --db", err);
	if (!st && !o->db)
		st = refuse_one(o, "keep-entries", "without --db", err);
	if (!st && !o->db)
		st = refuse_one(o, "keep-kernels", "without --db", err);
	if (!st && o->prof == RUN_PROF_EVENTS)
		st = refuse_one(o, "keep-kernels", "with --prof events", err);
	return st;
}

/* ---- costs of an earlier run ---- */

/* A value as the user would write it; NULL: none. */
static const char *value_text(const cJSON *v, char *buf, size_t n)
{
	if (cJSON_IsString(v))
		return v->valuestring;
	if (cJSON_IsBool(v))
		return cJSON_IsTrue(v) ? "1" : "0";
	if (!cJSON_IsNumber(v))
		return NULL;
	snprintf(buf, n, "%.17g", v->valuedouble);
	return buf;
}

static enum ar_status adopt(struct run_options *o, const struct costs *c, const char *name,
			    const cJSON *ours, const cJSON *theirs, struct ar_err *err)
{
	char a[32], b[32];
	const char *our = value_text(cJSON_GetObjectItemCaseSensitive(ours, name), a, sizeof a);
	const char *their = value_text(cJSON_GetObjectItemCaseSensitive(theirs, name), b,
				       sizeof b);

	if (!c->run.model_name)
		their = NULL;
	else if (!strcmp(name, "method"))	/* the run's own of the list */
		their = c->run.method_name;
	if (!opt_given(o->group, name))
		return their ? opt_set(o->group, name, their, err) : AR_OK;
	if (our && their && !strcmp(our, their))
		return AR_OK;
	return ar_fail(err, AR_USAGE, "%s '%s' contradicts %s, whose costs were measured with "
		       "%s%s%s; leave it out", name, our, c->name, their ? "'" : "none",
		       their ? their : "", their ? "'" : "");
}

enum ar_status run_options_adopt(struct run_options *o, const struct costs *c, struct ar_err *err)
{
	static const char *const names[] = { "model", "tp", "method", "layers", "sample-layers",
					     "extend", "attention-only" };
	const struct opt_group model[] = { o->group[RUN_GROUP_MODEL], { 0 } };
	cJSON *ours = cJSON_CreateObject(), *theirs = cJSON_Parse(c->run.options);
	enum ar_status st = AR_OK;

	if (!ours || !theirs || !opt_json(model, ours))
		st = ar_nomem(err);
	for (size_t i = 0; i < sizeof names / sizeof *names && !st; i++)
		st = adopt(o, c, names[i], ours, theirs, err);
	if (!st)
		st = opt_set(o->group, "costs", c->name, err);
	cJSON_Delete(ours);
	cJSON_Delete(theirs);
	return st;
}
