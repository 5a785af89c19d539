/* SPDX-License-Identifier: Apache-2.0 */
/* One invocation of 'attnreplay run', or a point of a search: its inputs, and the parts that use
 * them. */
#ifndef AR_RUN_H
#define AR_RUN_H

#include "base/binfile.h"
#include "kernels/methods/plan.h"
#include "model/params.h"
#include "model/weights.h"
#include "profiler/cupti/prof.h"
#include "profiler/store/store.h"
#include "replay/cost/comm.h"
#include "replay/cost/dense_as.h"
#include "replay/cost/engine_memory.h"
#include "replay/engine/prepare.h"
#include "replay/engine/replay.h"
#include "replay/engine/tokens.h"
#include "replay/ranks/barrier.h"
#include "replay/ranks/launcher.h"
#include "replay/ranks/world.h"
#include "replay/sched/model_groups.h"
#include "src/run/key.h"
#include "src/run/options.h"
#include "traces/prompts.h"

struct run;

/* Figures of a run that a search compares. */
struct run_figures {
	int64_t ok, good, of;	 /* requests: finished, within the limits of --slo, all */
	double done_per_s;	 /* requests finished, first arrival to end; NaN: it took no time */
	double limited[SLO_MAX]; /* ns, of each limit with a percentile; NaN: of no request */
	uint64_t n_limited[SLO_MAX]; /* requests that it is of */
	double ttft_p99;	     /* ns; NaN: of no request */
	double extrapolated;	     /* share of the iterations, by iter_cost.beyond */
	double cached;		     /* share of the prompts' tokens */
	double kept; /* share of the prompts' rows that are left after the last drop; 1: there is no
		      * dropper */
};

/* Hooks of another command.  They set the answers that runs give, and learn of their tokens, begin
 * and end. */
struct run_watch {
	void *ctx;
	/* When the run is loaded: set text[trace->n], which borrows from the run's prompts. */
	enum ar_status (*texts)(void *ctx, struct tokens_text *text, struct ar_err *err);
	tokens_see *see;		    /* of the tokens of each run */
	void (*begin)(void *ctx, size_t i); /* run i begins, in this process */
	/* Run i has ended, complete or interrupted, and its record not yet.  store NULL: none. */
	enum ar_status (*end)(void *ctx, size_t i, const struct replay_result *res,
			      struct store *store, struct ar_err *err);
	/* Add to the object of run i in --json.  False: no memory. */
	bool (*json)(void *ctx, size_t i, struct cJSON *o);
};

/* Of another part: tunes methods before they run, as --match says. */
struct run_tuner {
	/* Before a run is loaded.  *self: also set after a failure, NULL: no memory.  AR_USAGE:
	 * match is no goal. */
	enum ar_status (*open)(void **self, const char *match, struct ar_err *err);
	/* When all is loaded: give methods that are left to run their settings, with
	 * run_set_method(). */
	enum ar_status (*tune)(void *self, struct run *r, struct ar_err *err);
	/* After tune.  print: lines of the header.  reached: a line with the figure of a run of
	 * method number `method`, beside the one that was asked for.  json: how it was tuned, or
	 * JSON's null.  NULL: no memory. */
	void (*print)(const void *self, const struct run *r);
	void (*reached)(const void *self, size_t method, const struct replay_result *res);
	struct cJSON *(*json)(const void *self, size_t method, const struct replay_result *res);
	void (*close)(void *self);
};

/* Memory: of the model, and of the GPU that its engine would have. */
struct run_memory {
	int64_t n_params;		  /* of all ranks; 0: the run has no model */
	int64_t weight_bytes;		  /* of a rank, as the next two */
	int64_t token_bytes, block_bytes; /* of a token in the KV caches, and of a KV block */
	char gpu[256];
	int64_t gpu_bytes, free_bytes; /* 0: not known */
	double share;		       /* of gpu_bytes, --gpu-memory-utilization */
	struct engine_memory engine;   /* num_blocks 0: of no GPU, or a real one */
};

enum run_print { RUN_PRINT_HEADER = 1, RUN_PRINT_RESULT = 2 };

/* The inputs that the command line names, loaded once for all of its runs.  Limits, groups and
 * plans follow from them. */
struct run_inputs {
	/* Of a search, which read them for all points and keeps them; NULL: read them. */
	struct trace *lent_trace;
	struct costs *lent_costs;
	struct trace *trace;
	struct costs *costs;	    /* backend cost: of --costs; NULL: the formula */
	struct plan *cost_plan;	    /* their method, if it has an evictor; or NULL */
	struct sched_limits limits; /* num_blocks 0 until the backend is open */
	struct replay_apart apart;  /* when the method is known */
	struct model_groups groups; /* of the model, if limits.group is not NULL */
	struct run_memory memory;

	/* Loaded only if the backend needs a model. */
	struct model model;
	int whole_q_heads, whole_kv_heads;
	struct capture **capture;
	size_t n_capture;
	struct weights weights; /* of --weights, as is all until text */
	struct prompts prompts;
	struct tokens_text *text; /* [trace->n] */
	struct prepared prep;
	char **method;		  /* [n_methods] of --method, as written; NULL: none */
	struct plan **plan;	  /* [n_runs] the method of each run; NULL: none */
	struct dense_as dense_as; /* of --dense-as-engine */
	char rates[128];	  /* of backend roofline, in words */

	size_t n_methods;	 /* at least 1 */
	size_t n_runs;		 /* n_methods * --repeats, the methods in turn */
	struct host host;	 /* when the backend is known */
	struct stages stages;	 /* of the model */
	struct experts *experts; /* of the model; NULL: --ep and --routing are not used */
	struct comm comm;	 /* when the backend is known; ranks 1: of one rank or left out */
	struct comm_table comm_table;
	char comm_text[256];   /* in words; "": the model is not split */
	const char *comm_name; /* as the column run.comm; NULL: the model is not split */
	double host_scale;     /* how much longer it takes than that of --host; 0: was not asked */
	bool host_probed;      /* the probe says so */
};

/* The process of a run.  pid 0: there is none. */
struct run_process {
	pid_t pid;
	size_t run;
	int fd;	   /* socket to it */
	bool turn; /* it has been told that it may run */
};

/* The command: its options and outputs, and the objects that are open while it runs. */
struct run_session {
	struct run_options o;
	unsigned print;	   /* bits of enum run_print */
	const char *point; /* of a search, for the progress line: "rate 2.5"; NULL: none */
	const struct run_watch *watch;	 /* NULL: none */
	const struct run_tuner *tuner;	 /* NULL: none; --match has no effect then */
	void *match;			 /* the tuner's self; NULL: the methods run as written */
	char *cmdline, *options, *setup; /* for the database; setup NULL without --db */
	char *defaults;			 /* of run_defaults_text() */
	int64_t pid, command_utc_ns;
	size_t first;		/* of the runs, the first to run */
	struct outfile json;	/* of --json; f NULL: not given */
	struct key_inputs keys; /* of run_key(), with --db */

	const struct backend *backend; /* NULL: auto, not chosen yet */
	/* While a method runs. */
	struct backend_env env; /* the open backend keeps a pointer to it */
	struct blocks blocks;	/* closed if it keeps no KV */
	void *self;		/* of the backend */
	struct prof *prof;
	struct ar_err no_prof; /* why there is none */
	struct tokens *tokens; /* with --weights */
	struct store *store;
	struct energy_meter meter;     /* of the GPU, while a run is stored */
	struct launched_rank place;    /* of this process, with --ranks env */
	char *id_file;		       /* by which its ranks find each other; NULL: NCCL_COMM_ID */
	struct world *world;	       /* of this rank, unless --ranks one; NULL: it is alone */
	struct rank_facts *rank_fact;  /* [world_size()] while there is a world */
	struct barrier_spread barrier; /* of these ranks; -1: not known */
	int parent;		       /* socket to it, of a process for one run; 0: it is none */
	struct run_process ahead;      /* of the next run: it waits for its turn */
	bool muted;		       /* another rank than 0: it has no results */
	bool all_know;		       /* the ranks: why the run failed */
};

/* Of the last method that ran. */
struct run_outcome {
	struct run_figures figures;
	int64_t run_id;		/* in the database */
	char key[RUN_KEY_SIZE]; /* in the database */
	struct energy_use energy;
	struct run_wall {
		int64_t open_ns, replay_ns, replicates_ns;
	} wall; /* what the parts of the run took, by the clock of this machine */
};

struct run {
	struct run_inputs in;
	struct run_session session;
	struct run_outcome out;
};

/* load.c */
enum ar_status run_load(struct run *r, struct ar_err *err);
void run_unload(struct run *r);
/* Set in->host; the backend is open. */
enum ar_status run_load_host(struct run_inputs *in, const struct run_session *s,
			     struct ar_err *err);

/* run_comm.c: the collectives of --comm.  try: early.  load: set in->comm; the backend is open.
 * m: the rank of the model whose layers run.  AR_USAGE: the option has no effect, or the link
 * between the GPUs is not known. */
enum ar_status run_try_comm(struct run_inputs *in, const struct run_session *s, struct ar_err *err);
enum ar_status run_load_comm(struct run_inputs *in, const struct run_session *s,
			     const struct model *m, struct ar_err *err);

/* run_experts.c: try: a rule that is malformed, early.  spread: keep one rank's experts of a whole
 * model.  load: set in->experts; m: the rank of the model whose layers run. */
enum ar_status run_try_experts(const struct run_session *s, struct ar_err *err);
enum ar_status run_spread_experts(struct model *m, const struct run_options *o, struct ar_err *err);
enum ar_status run_load_experts(struct run_inputs *in, const struct run_session *s,
				const struct model *m, struct ar_err *err);
/* Whether their loads are drawn. */
bool run_draws_experts(const struct run_session *s);
void run_print_experts(const struct run_inputs *in, const struct run_session *s);

/* run_stages.c: set in->stages.  m: a rank of the model.  AR_USAGE. */
enum ar_status run_set_stages(struct run_inputs *in, const struct run_options *o,
			      const struct model *m, struct ar_err *err);
/* Refuse limits that do not go with stages.  AR_USAGE. */
enum ar_status run_check_stage_limits(const struct run_inputs *in, const struct run_options *o,
				      struct ar_err *err);
/* What stage i has of the model; it borrows all. */
struct model run_stage_model(const struct stages *s, const struct model *m, int i);
void run_print_stages(const struct run_inputs *in);

/* The times of a GPU move the clock: measured now, or in the run that --costs names, or
 * modelled. */
bool run_gpu_clock(const struct run_inputs *in, const struct run_session *s);

/* facts.c */
bool run_needs_model(const struct run_session *s);
/* Tokens of the longest request that the policy admits; at least 1. */
int64_t run_longest_request(const struct run_inputs *in);
/* Whether run i, counted from 0, is left to do: --resume leaves out runs that are done. */
bool run_is_left(const struct run_options *o, size_t i);
/* The file that the selector of run i is from; NULL: there is none. */
const struct plugin *run_plugin(const struct run_inputs *in, size_t i);

/* Give run i another method, and check it as methods of --method are checked.  The run's key stays
 * that of the method as written. */
enum ar_status run_set_method(struct run *r, size_t i, const char *name, struct ar_err *err);

/* run_weights.c: the inputs of --weights.  load: read weights and prompts; the model is loaded.
 * AR_USAGE: they are not of --model, or an option is missing or does not go with them.
 * load_tokens: give the requests their tokens, and with a prefix cache name the trace's blocks by
 * them.  open_tokens: begin a method anew.  Both do nothing without --weights.  AR_DATA: an id that
 * the model does not know. */
enum ar_status run_load_weights(struct run_inputs *in, const struct run_session *s,
				struct ar_err *err);
/* The ranks have joined: read the weights of this one, if others were read. */
enum ar_status run_take_slices(struct run_inputs *in, const struct run_session *s,
			       struct ar_err *err);
enum ar_status run_load_tokens(struct run_inputs *in, struct run_session *s, struct ar_err *err);
enum ar_status run_open_tokens(struct run_inputs *in, struct run_session *s, struct ar_err *err);
/* Warn if one rank of several runs alone with its weights; a search warns for all of its points. */
void run_warn_rank(const struct run *r);
void run_unload_weights(struct run_inputs *in);
/* Requests whose prompt is the start of one in the file, or several times one. */
struct run_fit {
	size_t cut, repeated;
} run_prompts_fit(const struct run_inputs *in);

/* run_apart.c: set in->apart as the options say; the memory is planned.  AR_USAGE: this model or
 * method has no rules for that.  print: a part of the header. */
enum ar_status run_set_apart(struct run_inputs *in, const struct run_options *o,
			     struct ar_err *err);
void run_print_apart(const struct run_inputs *in, const struct run_options *o);

/* run_groups.c: set the KV cache groups of the limits, and their block size, where the layers of
 * model m differ; cost: of the model of --costs.  AR_USAGE: the policy or an option has no rules
 * for them. */
enum ar_status run_set_groups(struct run_inputs *in, const struct run_options *o,
			      const struct model *m, struct ar_err *err);
enum ar_status run_set_cost_groups(struct run_inputs *in, const struct run_options *o,
				   struct ar_err *err);
/* Store the groups with the blocks that res says; does nothing where the limits have none. */
enum ar_status run_put_groups(const struct run_inputs *in, struct store *store,
			      const struct replay_result *res, struct ar_err *err);
/* Store where requests are in their sessions; does nothing where the trace has none. */
enum ar_status run_put_turns(const struct run_inputs *in, struct store *store, struct ar_err *err);
/* What a layer attends to, as columns `kind` say it. */
const char *run_kind(enum mixer m);

/* run_formats.c: set the formats that options and config say.  kernels: AR_USAGE if there are none
 * for them. */
enum ar_status run_set_formats(struct model *m, const struct run_options *o, bool kernels,
			       struct ar_err *err);
/* The same for the model of the run with costs c.  They have the formats of its record; without any
 * they are of bf16, whatever the config says.  AR_DATA: those of its options are others. */
enum ar_status run_set_cost_formats(struct model *m, const struct costs *c,
				    const struct run_options *o, struct ar_err *err);
/* The parameters of the method for the record: with "weights" and "kv_cache", where they are not
 * bf16.  The caller frees them; NULL: no memory. */
char *run_params(const struct model *m, const struct plan *p);
/* run_memory.c: set in->memory; the backend is known, and a GPU's is open.  AR_USAGE: an engine
 * cannot serve the model on the modelled GPU; the message names the sum and what would fit. */
enum ar_status run_plan_memory(struct run_inputs *in, const struct run_session *s,
			       struct ar_err *err);
/* Refuse a run whose GPU has no room for KV blocks: the message has the sum and what would fit. */
enum ar_status run_no_room(const struct run_inputs *in, struct ar_err *err);
/* Tokens that the pool holds: of requests of the greatest length, where layers differ. */
int64_t run_pool_tokens(const struct run_inputs *in);

/* run_layers.c: the work of the executed layers, where a backend counts it; the backend is open.
 * put: store it.  pairs_left: the share of the (query, key) pairs that a dropper left to the
 * layers; 1: all. */
enum ar_status run_put_layers(const struct run *r, struct ar_err *err);
/* The counts of hot buffers; layer: indices of their layers. */
enum ar_status run_put_hot(const struct run *r, const struct hot_rows *hot, const int *layer,
			   struct ar_err *err);
double run_pairs_left(const struct run *r);

/* all.c: describe the command, check the files that later methods read, run all methods that are
 * left, and write --json.  Several methods have a process each. */
enum ar_status run_all(struct run *r, struct ar_err *err);
/* Whether this process runs the only method itself. */
bool run_has_one_process(const struct run *r);

/* setup.c.  describe: set the options, the setup and the time that a database keeps.  AR_NOMEM.
 * setup: the options that two runs must share to be compared, as JSON text.  The caller frees it.
 * NULL: no memory. */
enum ar_status run_describe(struct run_session *s, struct ar_err *err);
char *run_setup(const struct opt_group *g);

/* run_print.c.  i: the run, from 0.  AR_IO: standard output cannot be written. */
enum ar_status run_print_header(const struct run *r, struct ar_err *err);
/* Print what a run measured up to its latencies; the rest, which needs its replicates. */
void run_print_latencies(const struct run *r, size_t i, const char *label,
			 const struct replay_result *res);
enum ar_status run_print_rest(const struct run *r, size_t i, const struct replay_result *res,
			      struct ar_err *err);
/* run_draws.c.  is_drawn: whether the host's times were drawn from a spread.  latency_decimals:
 * those to print of a latency; a drawn one has about three digits.  print_draws: the ranges over
 * draws, or why there are none; the run is stored.  AR_DB. */
bool run_is_drawn(const struct run *r);
int run_latency_decimals(const struct run *r, double ms);
enum ar_status run_print_draws(const struct run *r, struct ar_err *err);
const char *run_clock_name(const struct run_session *s);
/* The name of run i in output: its method, else its backend. */
const char *run_label(const struct run *r, size_t i);

/* figures.c.  limited_latency: the latency that a limit is for.  figures: slo has the limits. */
enum latency_metric run_limited_latency(const struct slo_limit *l);
void run_set_limits(struct replay *cfg, const struct slo *slo);
struct run_figures run_figures(const struct trace *trace, const struct slo *slo,
			       const struct replay_result *res);

/* Requests within all limits of --slo. */
struct run_goodput {
	double good, of, share; /* requests, and good / of */
	double per_s;		/* NaN: the run took no time */
};
struct run_goodput run_goodput(const struct trace *trace, const struct replay_result *res);

/* run_json.c: the file of --json; without the option all do nothing.  open: call it after all
 * checks, so that a refused command leaves an old file unchanged.  AR_USAGE: it is the database.
 * put: add run i; p NULL: no method.  close: returns st, or if it is AR_OK the status of writing;
 * the file appears only then. */
enum ar_status run_json_open(struct run_session *s, struct ar_err *err);
enum ar_status run_json_put(struct run *r, size_t i, const struct plan *p,
			    const struct replay_result *res, struct ar_err *err);
enum ar_status run_json_close(struct run_session *s, enum ar_status st, struct ar_err *err);

/* run_method.c. make_key: the key of run i on the backend that is open, or on none.  It reads the
 * input files at the first call.  make_lines: what the key sums up, see run_key_lines(). */
enum ar_status run_make_key(const struct run_inputs *in, struct run_session *s, size_t i,
			    char key[RUN_KEY_SIZE], struct ar_err *err);
enum ar_status run_make_lines(const struct run_inputs *in, struct run_session *s, size_t i,
			      char **text, struct ar_err *err);
/* try_method: check, before any run, that the files named by a method can be read. */
enum ar_status run_try_method(struct run *r, const char *name, struct ar_err *err);
/* Open the database, run method i and close the database. */
enum ar_status run_method(struct run *r, size_t i, struct ar_err *err);

/* run_energy.c: measure the energy of a GPU into *use, which is 0 where it cannot be measured or
 * nothing is stored; a warning says why.  The idle power is that of the run before, in *use, or is
 * measured. */
void run_energy_begin(struct run_session *s, struct energy_use *use);
void run_energy_end(struct run_session *s, struct energy_use *use);
/* The driver and clocks of the GPU that the backend runs on.  Without NVML there are no clocks, and
 * the backend names the driver. */
struct gpu_state run_gpu_state(const struct run_session *s);

/* child.c: run_method() in a process of its own.  next: the run after it; its process starts when
 * the replay of run i is over, and begins to use the GPU while run i ends.  i: there is none. */
enum ar_status run_method_apart(struct run *r, size_t i, size_t next, struct ar_err *err);
/* End the process of a run whose turn does not come. */
void run_drop_ahead(struct run_session *s);
/* In that process: the replay is over, and the GPU is idle.  wait: until the memory of the GPU is
 * free of the run before. */
void run_tell_replayed(const struct run_session *s);
void run_wait_alone(const struct run_session *s);

/* child.c: a process of this command that wrote a run is gone; a failure is a warning. */
void run_fail_lost(const struct run_session *s);

/* run_ranks.c: run_method() in a process for each rank.  Of several errors, that of the rank that
 * failed first. */
enum ar_status run_method_ranks(struct run *r, size_t i, struct ar_err *err);
/* This rank, which is not rank 0, neither prints nor stores. */
void run_mute_rank(struct run_session *s);
/* These do nothing without ranks. */
/* Tell the ranks of this one, whose backend is open, and take the smallest of their pools. */
enum ar_status run_meet_ranks(struct run_inputs *in, struct run_session *s, struct ar_err *err);
/* Take the host of rank 0. */
enum ar_status run_share_host(struct run_inputs *in, const struct run_session *s,
			      struct ar_err *err);
/* Measure how evenly the ranks leave a barrier. */
enum ar_status run_time_barriers(struct run_session *s, struct ar_err *err);
enum ar_status run_put_ranks(const struct run_session *s, struct ar_err *err);
/* The value of run.nccl; NULL: there are no ranks. */
const char *run_nccl_text(const struct run_session *s, char text[512]);
/* The rank's replay has ended with st. */
void run_leave_ranks(struct run_session *s, enum ar_status st);

/* rank_env.c: with --ranks env learn which rank this process is.  method_here: run_method(), as
 * that rank.  A message that rank 0 has as well is left empty. */
enum ar_status run_find_rank(struct run_session *s, struct ar_err *err);
enum ar_status run_method_here(struct run *r, size_t i, struct ar_err *err);
/* Join the other ranks, with a GPU and its tracer where the backend has them.  local: number of
 * this rank on its host. */
enum ar_status run_join_ranks(struct run_session *s, const struct world_join *join, int local,
			      struct ar_err *err);
/* Begin to use the GPU of the backend, if it has one, for run i: open() is short then. */
void run_attach(struct run *r, size_t i);
/* Trace the kernels of a backend with a GPU, from before the first call of CUDA on.  Without a
 * tracer that is fine; then s->prof stays NULL. */
enum ar_status run_open_prof(struct run_session *s, const struct backend *b, struct ar_err *err);

#endif
