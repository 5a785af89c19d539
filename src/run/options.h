/* SPDX-License-Identifier: Apache-2.0 */
/* Options of 'attnreplay run'.  An option that cannot have an effect is an error. */
#ifndef AR_RUN_OPTIONS_H
#define AR_RUN_OPTIONS_H

#include "base/opt.h"
#include "replay/cost/backend_cost.h"
#include "replay/cost/backend_roofline.h"
#include "replay/cost/costs.h"
#include "replay/engine/replay.h"
#include "replay/sched/arrivals.h"
#include "replay/sched/policy.h"
#include "src/report/slo.h"
#include "src/run/engine_defaults.h"
#include "src/run/resume.h"

#define RUN_BACKENDS_MAX 8
#define RUN_POLICIES_MAX 32
#define RUN_ROUTERS_MAX 16

enum { RUN_HOT_SIZES = 8, RUN_HOT_MOST = 1 << 20 };
enum run_clock { RUN_CLOCK_MEASURED, RUN_CLOCK_FORMULA };
enum run_prof { RUN_PROF_ACTIVITY, RUN_PROF_EVENTS };
enum run_kept { RUN_KEPT_REQUESTS, RUN_KEPT_ITERATIONS, RUN_KEPT_PHASES, RUN_KEPT_ENTRIES };
enum run_ranks { RUN_RANKS_ONE, RUN_RANKS_LOCAL, RUN_RANKS_ENV };
enum run_extend { RUN_EXTEND_ERROR, RUN_EXTEND_TILE };

/* Groups in the order of --help; the groups of the backends follow. */
enum {
	RUN_GROUP_MAIN,
	RUN_GROUP_COMMAND,
	RUN_GROUP_RANKS,
	RUN_GROUP_TRACE,
	RUN_GROUP_SCHED,
	RUN_GROUP_MODEL,
	RUN_GROUP_GPU,
	RUN_GROUP_BACKEND
};

struct run_options {
	char *resume, *trace, *backend, *db, *slo, *json;
	char *engine_args;
	struct resumed *resumed; /* of resume, NULL if it is NULL */
	struct slo objectives;	 /* of slo, none if it is NULL */
	int policy;		 /* index into policies[] */
	int engine_defaults;	 /* enum run_defaults */
	int clock;		 /* enum run_clock */
	char *host, *host_speed, *dense_as;
	int64_t host_seed, host_fixed_ns, host_per_request_ns, host_per_tok_ns;
	struct trace_args trace_args;
	struct arrival_rule arrival;
	int64_t replicas, router_stats_ns, router_seed;
	int router; /* index into request_routers[] */
	struct replay_apart apart;
	char *kv_link; /* of apart */

	struct sched_limits limits; /* num_blocks 0: auto */
	char *num_blocks;
	struct front_limits front;
	char *queued_reqs, *queued_tok; /* of front */
	bool chunked, host_http;
	double memory_share; /* of the GPU's memory */

	char *comm, *model, *as_model, *quantization, *kv_dtype, *kv_skip, *dtype, *weights,
		*prompts, *methods, *layers, *match;
	char *evict, *decode, *prune, *skip; /* parts for methods; in it, once parsed */
	double temperature;
	int64_t tp, pp, ep, sample_layers, seed, repeats;
	int ep_backend; /* enum expert_way */
	char *pp_layers;
	int64_t intervals_ns; /* how long to make replicates */
	int intervals;	      /* 0 or 1 */
	struct opt_list captures, selectors;
	int extend; /* enum run_extend */
	int ranks;  /* enum run_ranks */
	int64_t rank;
	char *nccl_id;
	int64_t comm_join_ns, comm_timeout_ns;
	char *devices;
	int page_size; /* 0: auto; else as selector_block_tok(), counted from 1 */
	char *decode_share;
	char *hot_buffer;
	int64_t hot_size[RUN_HOT_SIZES]; /* tokens of hot buffers, ascending */
	int n_hot_size;
	double accuracy, accuracy_decode; /* accuracy_decode -1: auto */
	bool attention_only, share_kv, no_hybrid;

	int keep_entries; /* 0 or 1 */
	int keep_tables;  /* enum run_kept */
	int prof;	  /* enum run_prof */
	int64_t keep_kernels;

	const struct costs *costs; /* of struct run_command, while options are parsed */
	/* Of run_engine_defaults(): the GPU, and what differs from the engine's own, or "". */
	struct engine_gpu engine_gpu;
	char engine_differs[512];
	char engine_left[1024]; /* flags that --engine-args leaves out, or "" */
	bool engine_dp;		/* the replicas are those of its --data-parallel-size */

	void *backend_opts[RUN_BACKENDS_MAX]; /* same index as backends[] */
	char title[RUN_BACKENDS_MAX][96];
	struct opt_group group[RUN_GROUP_BACKEND + RUN_BACKENDS_MAX + 1];
};

/* Which of the options that `run` alone had a command takes: none, those of ranks, or all. */
enum run_own { RUN_OWN_NONE, RUN_OWN_RANKS, RUN_OWN_ALL };

/* Another command that makes runs. */
struct run_command {
	enum run_own run_own;
	struct opt_group own; /* its own options, which get parsed; the caller releases them */
	const struct run_setting {
		const char *name, *value;
	} * setting; /* options of the run that it sets, ended by name NULL; or NULL */
	/* The costs of --costs, if the command has read them.  NULL: it has not, or there is no
	 * --costs. */
	const struct costs *costs;
	/* Check the given options and set more, before the options of the run are checked; may be
	 * NULL. */
	enum ar_status (*parsed)(const struct run_command *c, struct run_options *o,
				 struct ar_err *err);
};

/* The replicas, and how requests are routed to them. */
struct router_rule run_options_route(const struct run_options *o);

/* Set every option to its default. */
enum ar_status run_options_init(struct run_options *o, enum run_own own, struct ar_err *err);
/* Parse the options of runs and *own, which comes first, without checks.  The operands are left in
 * argv[0 .. *argc). */
enum ar_status run_options_read(struct run_options *o, struct opt_group *own, int *argc,
				char **argv, struct ar_err *err);
/* Parse the options and check all that does not depend on the backend.  c NULL: the command is
 * 'attnreplay run'. */
enum ar_status run_options_parse(struct run_options *o, struct run_command *c, int argc,
				 char **argv, struct ar_err *err);
void run_options_release(struct run_options *o);
/* Show the groups of options.  hide: leave out the options with a name in this table, as they are
 * the command's own; NULL: none. */
void run_options_show(enum run_own own, const struct opt *hide,
		      void (*show)(const struct opt_group *, FILE *), FILE *f);

/* AR_USAGE, naming the option, if a given option has no effect: with any backend (early), or with
 * backend b. */
enum ar_status run_options_check_early(const struct run_options *o, struct ar_err *err);
enum ar_status run_options_check(const struct run_options *o, const struct backend *b,
				 struct ar_err *err);

/* Costs hold for one method, one model and its layers.  Take these options from the run that
 * measured c where they were not given.  AR_USAGE, naming the option, if a given one differs. */
enum ar_status run_options_adopt(struct run_options *o, const struct costs *c, struct ar_err *err);

/* Take the options of the command that o->resumed is of.  AR_USAGE, naming the option, if one was
 * given that shapes results.  AR_DATA: the stored options cannot be read. */
enum ar_status run_options_resume(struct run_options *o, struct ar_err *err);

/* run_apart.c: read the value of --kv-link; refuse options that do not go with prefill and decodes
 * apart. */
enum ar_status run_read_apart(struct run_options *o, struct ar_err *err);
enum ar_status run_check_apart(const struct run_options *o, struct ar_err *err);
/* run_comm.c: whether the value of --comm is no file. */
bool run_comm_is_word(const char *comm);
/* run_stages.c: the rules of --pp and --pp-layers.  AR_USAGE. */
enum ar_status run_check_stages(const struct run_options *o, const struct backend *b,
				struct ar_err *err);
/* run_experts.c: whether the experts are spread over the engines, not over the ranks of one; the
 * rules of --ep, --ep-backend and --routing.  AR_USAGE. */
bool run_shares_experts(const struct run_options *o);
enum ar_status run_check_experts(const struct run_options *o, const struct backend *b,
				 struct ar_err *err);
/* run_ranks.c: the rules of --ranks.  AR_USAGE. */
enum ar_status run_check_ranks(const struct run_options *o, const struct backend *b,
			       struct ar_err *err);
/* densities.c: of --density.  split: make an item of each METHOD=SHARE; run_options_parse() does.
 * used: whether one of n methods has this one.  keep: leave out those of other methods than these
 * n, as they are of other points. */
const struct opt_list *run_options_densities(const struct run_options *o);
enum ar_status run_options_split_densities(struct run_options *o, struct ar_err *err);
bool run_options_density_used(const char *density, char *const *method, size_t n);
enum ar_status run_options_keep_densities(struct run_options *o, char *const *method, size_t n,
					  struct ar_err *err);

/* The option struct of backend b. */
const void *run_options_of(const struct run_options *o, const struct backend *b);
/* Value of --costs; NULL: not given. */
const char *run_options_costs(const struct run_options *o);

#endif
