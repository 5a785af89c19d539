/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/options.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "kernels/methods/plan.h"
#include "kernels/select/plugin.h"
#include "replay/cost/backend_cost.h"
#include "replay/engine/run_scope.h"
#include "src/json_file.h"
#include "src/run/engine_args.h"
#include "src/model_opt.h"

#define AT(field) offsetof(struct run_options, field)
#define ENGINE "the engine's"

static const char *const clocks[] = { "measured", "formula", NULL };
static const char *const loops[] = { "open", "sessions", "users", NULL };
static const char *const profs[] = { "activity", "events", NULL };
static const char *const orders[] = { "fcfs", "priority", NULL };
static const char *const chunkings[] = { "fcfs", "equal", "none", NULL };
static const char *const evict_caches[] = { "refuse", "keep", "drop", NULL };
static const char *const ranks[] = { "one", "local", "env", NULL };
static const char *const extends[] = { "error", "tile", NULL };
static const char *const quantizations[] = {
	"auto", "none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "w4a16", "mxfp4", NULL
};
static const char *const kv_dtypes[] = { "auto",     "bfloat16",	   "fp8",	 "fp8_e4m3",
					 "fp8_e5m2", "fp8_per_token_head", "fp8_ds_mla", NULL };
static const char *const dtypes[] = { "auto", "bfloat16", "float16", "half", NULL };
static const char *const page_sizes[] = { "auto", "64", "128", NULL };
/* Names, then other names.  set_groups() fills them in. */
static const char *policy_names[2 * RUN_POLICIES_MAX + 1];
static const char *router_names[RUN_ROUTERS_MAX + 1];

static const char *const defaults[] = { "engine", "none", NULL };
static const char *const no_yes[] = { "no", "yes", NULL };
static const char *const off_on[] = { "off", "on", NULL };
static const char *const kept[] = { "requests", "iterations", "phases", "entries", NULL };

/* clang-format off */
static const struct opt main_opts[] = {
	{ .name = "trace",
	  .also = "dataset-path",
	  .type = OPT_STR, .off = AT(trace), .arg = "FILE",
	  .help = "request trace to replay, - for standard input", .may_differ = true },
	{ .name = "loop", .type = OPT_ENUM, .off = AT(arrival.loop), .arg = "HOW", .def = "open",
	  .choice = loops,
	  .help = "when requests arrive: at the times of the trace (open), after the previous "
		  "answer of their session (sessions), or when a user has had an answer (users)" },
	{ .name = "users",
	  .also = "max-concurrency",
	  .type = OPT_INT, .off = AT(arrival.users), .arg = "N", .def = "1",
	  .min = 1, .max = 1 << 30,
	  .help = "number of users for --loop users; they take the sessions in turn",
	  .scope = RUN_USERS },
	{ .name = "think-time", .type = OPT_TIME, .off = AT(arrival.think_ns), .arg = "TIME",
	  .def = "0", .max = 3.6e18,
	  .help = "time from an answer to the next request, where the trace states none",
	  .scope = RUN_ANSWERS },
	{ .name = "think-cap", .type = OPT_TIME, .off = AT(arrival.think_cap_ns), .arg = "TIME",
	  .def = "0", .max = 3.6e18,
	  .help = "cut longer think times of the trace to TIME, 0: no limit",
	  .scope = RUN_ANSWERS },
	{ .name = "think-scale", .type = OPT_REAL, .off = AT(arrival.think_scale), .arg = "X",
	  .def = "1", .min = 1e-9, .max = 1e6,
	  .help = "multiply think times of the trace by X, after --think-cap",
	  .scope = RUN_ANSWERS },
	{ .name = "idle-cap", .type = OPT_TIME, .off = AT(arrival.idle_cap_ns), .arg = "TIME",
	  .def = "0", .max = 3.6e18,
	  .help = "where no request is in flight, let all others come earlier, so that the next "
		  "comes after TIME at the latest; 0: they do not" },
	{ .name = "policy", .type = OPT_ENUM, .off = AT(policy), .arg = "NAME", .def = "vllm-0.33",
	  .choice = policy_names, .help = "the scheduler of an engine, at a version",
	  .may_differ = true },
	{ .name = "replicas", .type = OPT_INT, .off = AT(replicas), .arg = "N", .def = "1",
	  .min = 1, .max = ROUTER_MOST,
	  .help = "engines of one model that share the requests, each with its own scheduler, "
		  "pool and GPUs" },
	{ .name = "router", .type = OPT_ENUM, .off = AT(router), .arg = "NAME", .def = "vllm",
	  .choice = router_names,
	  .help = "which replica gets a request when it arrives, unless the trace says so" },
	{ .name = "router-stats", .type = OPT_TIME, .off = AT(router_stats_ns), .arg = "TIME",
	  .def = "100ms", .max = 3.6e12,
	  .help = "how often routers vllm and vllm-4w learn the load of the replicas; 0: before "
		  "each request" },
	{ .name = "router-seed", .type = OPT_INT, .off = AT(router_seed), .arg = "N", .def = "1",
	  .max = 9e15, .help = "seed of router random" },
	{ .name = "prefill-replicas", .type = OPT_INT, .off = AT(apart.prefill), .arg = "N",
	  .def = "0", .max = ROUTER_MOST / 2,
	  .help = "engines that make first tokens only, in place of --replicas; 0: each makes all",
	  .scope = POLICY_KV_APART },
	{ .name = "decode-replicas", .type = OPT_INT, .off = AT(apart.decode), .arg = "N",
	  .def = "0", .max = ROUTER_MOST / 2,
	  .help = "engines that make all other tokens, from KV of those of --prefill-replicas",
	  .scope = POLICY_KV_APART },
	{ .name = "kv-link", .type = OPT_STR, .off = AT(kv_link), .arg = "NAME|RATE:LATENCY",
	  .def = "ndr400",
	  .help = "what that KV travels over, one transfer at a time between two engines: hdr200, "
		  "ndr400, xdr800, pcie5, nvlink4, or a rate and a latency, such as 50GB:10us",
	  .scope = POLICY_KV_APART },
	{ .name = "engine-defaults", .type = OPT_ENUM, .off = AT(engine_defaults),
	  .arg = "engine|none", .def = "engine", .choice = defaults,
	  .help = "whose values options have that are not given: those of the policy's engine on "
		  "this GPU, or none", .may_differ = true },
	{ .name = "engine-args", .type = OPT_STR, .off = AT(engine_args), .arg = "COMMAND",
	  .help = "take options from the command line of 'vllm serve' or 'python -m "
		  "sglang.launch_server', where they are not given here; the policy is the newest "
		  "of that engine", .may_differ = true },
	{ .name = "backend", .type = OPT_STR, .off = AT(backend), .arg = "NAME", .def = "auto",
	  .help = "what runs the iterations: cuda, cpu, cost or roofline; auto: cuda if there is a "
		  "GPU, else cpu", .may_differ = true },
	{ .name = "db", .type = OPT_STR, .off = AT(db), .arg = "FILE",
	  .help = "database to add the runs to; if not given, nothing is stored",
	  .may_differ = true, .record_only = true },
	{ .name = "keep-entries", .type = OPT_ENUM, .off = AT(keep_entries), .arg = "no|yes",
	  .def = "yes", .choice = no_yes,
	  .help = "store what each request ran in each iteration; this is most of the database",
	  .scope = RUN_DB, .may_differ = true, .record_only = true },
	{ .name = "keep-tables", .type = OPT_ENUM, .off = AT(keep_tables), .arg = "UPTO",
	  .def = "entries", .choice = kept,
	  .help = "store requests alone, or also iterations, the times of their phases, and the "
		  "entries of their batches",
	  .scope = RUN_DB, .may_differ = true, .record_only = true },
	{ .name = "clock", .type = OPT_ENUM, .off = AT(clock), .arg = "WHAT", .def = "measured",
	  .choice = clocks,
	  .help = "what advances the virtual clock: the measured times of iterations, or the cost "
		  "formula; the backend runs in both cases", .scope = RUN_CLOCK },
	{ .name = "host", .type = OPT_STR, .off = AT(host), .arg = "FILE|PRESET|none",
	  .def = "auto",
	  .help = "time that the engine's host takes: a file of 'attnreplay calibrate host', a "
		  "preset, or none; auto: the preset of the policy where GPU times are the clock" },
	{ .name = "host-seed", .type = OPT_INT, .off = AT(host_seed), .arg = "N", .def = "1",
	  .max = 9e15,
	  .help = "seed that draws the host's times from their spread, anew in each repeat; 0: no "
		  "spread, they take their fitted time" },
	{ .name = "host-speed", .type = OPT_STR, .off = AT(host_speed), .arg = "X|probe|preset",
	  .def = "auto",
	  .help = "how fast the host is: X times as fast as that of --host, as fast as a probe of "
		  "this one says, or as that of --host; auto: probe with backend cuda, else "
		  "preset" },
	{ .name = "host-http", .type = OPT_FLAG, .off = AT(host_http), .def = "yes", .own = "yes",
	  .help = "with the host's times for HTTP, tokenization and detokenization, where --host "
		  "has any" },
	{ .name = "host-overhead", .type = OPT_TIME, .off = AT(host_fixed_ns), .arg = "TIME",
	  .def = "0", .max = 3.6e12, .help = "host time added to each iteration" },
	{ .name = "host-overhead-per-request", .type = OPT_TIME, .off = AT(host_per_request_ns),
	  .arg = "TIME", .def = "0", .max = 1e9,
	  .help = "host time added to an iteration for each request in it" },
	{ .name = "host-overhead-per-token", .type = OPT_TIME, .off = AT(host_per_tok_ns),
	  .arg = "TIME", .def = "0", .max = 1e9,
	  .help = "host time added to an iteration for each of its tokens" },
	{ .name = "dense-as-engine", .type = OPT_STR, .off = AT(dense_as), .arg = "FACTOR|FILE",
	  .help = "multiply the times of dense attention, so that it costs what an engine's own "
		  "kernels cost: PREFILL[,DECODE], or a file of contrib/dense_as_engine.py",
	  .scope = RUN_COSTED | RUN_MEASURED | RUN_TRACED },
	{ .name = "job", .type = OPT_JOB, .arg = "FILE",
	  .help = "read options from a file, one 'name = value' a line" },
	{ 0 }
};

/* Of 'attnreplay run' alone. */
static const struct opt command_opts[] = {
	{ .name = "resume", .type = OPT_STR, .off = AT(resume), .arg = "DB[:RUN]",
	  .help = "go on with the methods that the command of this run did not finish; without RUN "
		  "the latest such command", .may_differ = true, .record_only = true },
	{ .name = "repeats", .type = OPT_INT, .off = AT(repeats), .arg = "N", .def = "1", .min = 1,
	  .max = 1000,
	  .help = "run each method N times, in turn; the report has median and spread",
	  .may_differ = true },
	{ .name = "intervals", .type = OPT_ENUM, .off = AT(intervals), .arg = "on|off",
	  .def = "on", .choice = off_on,
	  .help = "replay resamples of the requests, for intervals of the latencies and for the "
		  "verdict whether the load can be sustained",
	  .scope = RUN_DB, .may_differ = true, .record_only = true },
	{ .name = "intervals-time", .type = OPT_TIME, .off = AT(intervals_ns), .arg = "TIME",
	  .def = "10s", .max = 3.6e12,
	  .help = "most time that these replays of a run take, on all processors",
	  .scope = RUN_DB, .may_differ = true, .record_only = true },
	{ .name = "slo",
	  .also = "goodput",
	  .type = OPT_STR, .off = AT(slo), .arg = "LIST",
	  .help = "latency limits for the goodput, such as ttft:500ms,tpot:50ms,e2e:10s",
	  .may_differ = true, .record_only = true },
	{ .name = "json", .type = OPT_STR, .off = AT(json), .arg = "FILE", .help = JSON_FILE_HELP,
	  .may_differ = true, .record_only = true },
	{ .name = "rank", .type = OPT_INT, .off = AT(rank), .arg = "R", .max = 1023,
	  .help = "of --ranks env: the rank of this process, from 0, which the launcher tells",
	  .may_differ = true, .record_only = true },
	{ .name = "nccl-id", .type = OPT_STR, .off = AT(nccl_id), .arg = "FILE",
	  .help = "of --ranks env: file by which the ranks find each other, of a folder that all "
		  "hosts share; the name of --db with .ncclid unless given",
	  .may_differ = true, .record_only = true },
	{ 0 }
};

/* Of commands that run all ranks. */
static const struct opt rank_opts[] = {
	{ .name = "ranks", .type = OPT_ENUM, .off = AT(ranks), .arg = "one|local|env",
	  .def = "one", .choice = ranks,
	  .help = "which ranks of --tp run: one; all, as processes of this host; or all that a "
		  "launcher starts, each with this command",
	  .may_differ = true },
	{ .name = "devices", .type = OPT_STR, .off = AT(devices), .arg = "LIST",
	  .help = "GPUs of the ranks, such as 0,1 or 4-7; if not given, the first ones",
	  .may_differ = true, .record_only = true },
	{ .name = "comm-join", .type = OPT_TIME, .off = AT(comm_join_ns), .arg = "TIME",
	  .def = "120s", .min = 1, .max = 3.6e12,
	  .help = "longest wait for the other ranks at the start",
	  .may_differ = true, .record_only = true },
	{ .name = "comm-timeout", .type = OPT_TIME, .off = AT(comm_timeout_ns), .arg = "TIME",
	  .def = "60s", .min = 1, .max = 3.6e12,
	  .help = "end the run when a rank does not come for so long",
	  .may_differ = true, .record_only = true },
	{ 0 }
};

static const struct opt sched_opts[] = {
	{ .name = "max-num-batched-tokens",
	  .also = "chunk-size,chunked-prefill-size,max-num-tokens",
	  .type = OPT_INT, .off = AT(limits.max_batched_tok),
	  .arg = "N", .def = "8192", .own = ENGINE, .min = 1, .max = 1 << 30,
	  .help = "token budget of an iteration: the chunk size under load" },
	{ .name = "max-num-seqs",
	  .also = "max-batch-size,max-running-requests",
	  .type = OPT_INT, .off = AT(limits.max_seqs), .arg = "N",
	  .def = "256", .own = ENGINE, .min = 1, .max = 1 << 20,
	  .help = "limit of running requests, at most the token budget" },
	{ .name = "block-size", .type = OPT_INT, .off = AT(limits.block_tok), .arg = "N",
	  .def = "16", .own = ENGINE, .min = 1, .max = 1 << 20,
	  .help = "tokens of a KV block" },
	{ .name = "num-gpu-blocks",
	  .also = "num-gpu-blocks-override",
	  .type = OPT_STR, .off = AT(num_blocks), .arg = "N|auto",
	  .def = "auto",
	  .help = "KV blocks in the pool, one of them reserved; auto: what fits the GPU, real or "
		  "modelled, or without one what the trace can use" },
	{ .name = "gpu-memory-utilization",
	  .also = "mem-fraction-static",
	  .type = OPT_REAL, .off = AT(memory_share), .arg = "X", .def = "0.9", .own = ENGINE,
	  .min = 0.01, .max = 1,
	  .help = "share of the GPU's memory that the engine may use, for --num-gpu-blocks auto",
	  .scope = RUN_MODEL },
	{ .name = "long-prefill-token-threshold", .type = OPT_INT,
	  .off = AT(limits.long_prefill_tok), .arg = "N", .def = "0", .max = 1 << 30,
	  .help = "most tokens of one request in an iteration, 0: no limit",
	  .scope = POLICY_LONG_PREFILL },
	{ .name = "enable-chunked-prefill", .type = OPT_FLAG, .off = AT(chunked), .def = "yes",
	  .own = "yes", .help = "cut prompts that are longer than what is left of the token budget",
	  .scope = POLICY_WHOLE_PROMPTS },
	{ .name = "max-num-queued-reqs", .type = OPT_STR, .off = AT(queued_reqs), .arg = "N|none",
	  .def = "none",
	  .help = "reject a request, with HTTP 503, that arrives while N others are unfinished",
	  .scope = POLICY_QUEUE },
	{ .name = "max-num-queued-tokens", .type = OPT_STR, .off = AT(queued_tok),
	  .arg = "N|none", .def = "none",
	  .help = "reject a request, with HTTP 503, that arrives while the prompts of requests "
		  "without an output have N tokens or more", .scope = POLICY_QUEUE },
	{ .name = "enable-prefix-caching", .type = OPT_FLAG, .off = AT(limits.prefix_cache),
	  .own = ENGINE, .also_no = "disable-radix-cache",
	  .help = "keep KV blocks of finished and preempted requests and share those of equal "
		  "prefixes", .scope = POLICY_PREFIX_CACHE },
	{ .name = "evict-cache", .type = OPT_ENUM, .off = AT(limits.evict_cache), .arg = "HOW",
	  .def = "refuse", .choice = evict_caches,
	  .help = "where an evictor takes tokens: keep cached prefixes and copy what stays, or "
		  "drop those of one owner; refuse: no evictor with a prefix cache",
	  .scope = RUN_PREFIX_CACHE },
	{ .name = "disable-hybrid-kv-cache-manager", .type = OPT_FLAG, .off = AT(no_hybrid),
	  .help = "give window layers the KV blocks of full attention", .scope = RUN_MODEL },
	{ .name = "scheduling-policy",
	  .also = "schedule-policy",
	  .type = OPT_ENUM, .off = AT(limits.order), .arg = "ORDER",
	  .def = "fcfs", .choice = orders,
	  .help = "order of the queue and of preemption: by arrival (fcfs) or by priority",
	  .scope = POLICY_ORDER },
	{ .name = "chunk-policy", .type = OPT_ENUM, .off = AT(limits.chunks), .arg = "HOW",
	  .def = "fcfs", .choice = chunkings,
	  .help = "how prompts share the token budget: in order, each takes what is left (fcfs), "
		  "one unit each in turn (equal), or in order and whole (none)",
	  .scope = POLICY_CHUNKS },
	{ .name = "chunk-unit-size", .type = OPT_INT, .off = AT(limits.chunk_unit), .arg = "N",
	  .def = "0", .max = 1 << 30,
	  .help = "a prompt that is cut runs a multiple of N tokens; 0: --block-size",
	  .scope = POLICY_CHUNK_UNIT },
	{ .name = "max-prefill-tokens", .type = OPT_INT, .off = AT(limits.max_prefill_tok),
	  .arg = "N", .def = "16384", .max = 1 << 30,
	  .help = "prompt tokens after which an iteration admits no more, 0: no limit",
	  .scope = POLICY_PREFILL_TOKENS },
	{ .name = "ignore-eos", .type = OPT_FLAG, .off = AT(limits.ignore_eos),
	  .help = "admit requests as an engine does that knows when each of them ends",
	  .scope = POLICY_IGNORE_EOS },
	{ .name = "survive-out-of-memory", .type = OPT_FLAG, .off = AT(limits.survives),
	  .help = "go on where the engine itself fails, out of memory", .scope = POLICY_FAILS },
	{ .name = "watermark", .type = OPT_REAL, .off = AT(limits.watermark), .arg = "SHARE",
	  .max = 0.99,
	  .help = "share of KV blocks to leave free at admission; the policy's own if not given",
	  .scope = POLICY_WATERMARK },
	{ .name = "async-scheduling", .type = OPT_FLAG, .off = AT(limits.async),
	  .own = ENGINE, .also_no = "disable-overlap-schedule",
	  .help = "schedule an iteration while the previous one still runs",
	  .scope = POLICY_ASYNC },
	{ .name = "max-model-len",
	  .also = "context-length,max-seq-len",
	  .type = OPT_INT, .off = AT(limits.max_len), .arg = "N",
	  .def = "0", .max = UINT32_MAX,
	  .help = "most tokens of a request, prompt and output; 0: the model's limit, if any" },
	{ 0 }
};

/* Parts for the methods of --method, of the kind with this key. */
#define PART_OPT(key, text) \
	{ \
		.name = #key, .type = OPT_STR, .off = AT(key), .arg = "LIST", .help = text, \
		.scope = RUN_KERNELS, .may_differ = true \
	}

static const struct opt model_opts[] = {
	{ .name = "model", .type = OPT_STR, .off = AT(model), .arg = "NAME",
	  .help = "preset, config.json, or folder with one",
	  .scope = RUN_COSTED, .may_differ = true },
	AS_MODEL_OPT(AT(as_model), .scope = RUN_KERNELS | RUN_REPLAYED, .may_differ = true),
	{ .name = "quantization", .type = OPT_STR, .off = AT(quantization), .arg = "NAME",
	  .choice = quantizations,
	  .help = "format of the weights, by bytes and rates: none for bf16, whatever the config "
		  "says, or a format for a config that says nothing; auto follows the config",
	  .scope = RUN_COSTED | RUN_REPLAYED, .may_differ = true },
	{ .name = "kv-cache-dtype", .type = OPT_STR, .off = AT(kv_dtype), .arg = "TYPE",
	  .choice = kv_dtypes,
	  .help = "format of the KV cache; auto follows the config",
	  .scope = RUN_COSTED | RUN_REPLAYED, .may_differ = true },
	{ .name = "kv-cache-dtype-skip-layers", .type = OPT_STR, .off = AT(kv_skip), .arg = "LIST",
	  .help = "layers whose KV cache stays in bf16, such as 0,4-6, and sliding_window for all "
		  "with a window", .scope = RUN_COSTED | RUN_REPLAYED, .may_differ = true },
	{ .name = "dtype", .type = OPT_STR, .off = AT(dtype), .arg = "TYPE", .choice = dtypes,
	  .help = "format of activations, as engines name it; here they have 2 bytes",
	  .scope = RUN_MODEL },
	{ .name = "tp",
	  .also = "tensor-parallel-size,tp-size",
	  .type = OPT_INT, .off = AT(tp), .arg = "N", .def = "1", .min = 1,
	  .max = 1024, .help = "tensor parallel size; one of the ranks is run",
	  .scope = RUN_COSTED },
	{ .name = "pp",
	  .also = "pipeline-parallel-size",
	  .type = OPT_INT, .off = AT(pp), .arg = "N", .def = "1", .min = 1, .max = STAGES_MOST,
	  .help = "pipeline stages, each with some of the layers; as many batches are in flight",
	  .scope = RUN_MODEL | RUN_MEASURED },
	{ .name = "pp-layers", .type = OPT_STR, .off = AT(pp_layers), .arg = "LIST",
	  .help = "layers of each stage, such as 11,11,10; as vLLM splits them if not given",
	  .scope = RUN_MODEL | RUN_MEASURED },
	{ .name = "ep", .type = OPT_INT, .off = AT(ep), .arg = "N", .def = "1", .min = 1,
	  .max = 1024,
	  .help = "expert parallel size: each rank has an Nth of the experts, whole ones; the "
		  "ranks are those of --tp, or of all --replicas",
	  .scope = RUN_MODEL | RUN_MEASURED },
	{ .name = "ep-backend", .type = OPT_ENUM, .off = AT(ep_backend), .arg = "NAME",
	  .def = "agrs", .choice = expert_way_names,
	  .help = "how rows get from engine to engine: all-gather and reduce-scatter (agrs), "
		  "or all-to-all with a copy for each rank (a2a) or expert (a2a-experts)",
	  .scope = RUN_MODEL | RUN_MEASURED },
	{ .name = "comm", .type = OPT_STR, .off = AT(comm), .arg = "TABLE|model|none",
	  .def = "auto",
	  .help = "time of the collectives between the ranks of --tp: of a table of measured ones, "
		  "a file or a preset; of a ring over the GPU's link; or none; auto: a preset for "
		  "GPU, engine and ranks, else the ring", .scope = RUN_MODEL | RUN_MEASURED },
	{ .name = "capture", .type = OPT_LIST, .off = AT(captures), .arg = "FILE",
	  .help = "capture of Q, K and V to replay, or random:SEED; repeat the option for more",
	  .scope = RUN_KERNELS | RUN_REPLAYED },
	{ .name = "weights", .type = OPT_STR, .off = AT(weights), .arg = "DIR",
	  .help = "folder with config.json and safetensors: run this model itself, on the tokens "
		  "of "
		  "--prompts, in place of a capture", .scope = RUN_KERNELS | RUN_REFERENCE },
	{ .name = "prompts", .type = OPT_STR, .off = AT(prompts), .arg = "FILE",
	  .help = "token ids: on each line a JSON list, or an object that has one as 'prompt'; "
		  "request I takes line I modulo their number, repeated or cut to its length",
	  .scope = RUN_WEIGHTS },
	{ .name = "temperature", .type = OPT_REAL, .off = AT(temperature), .arg = "X", .def = "0",
	  .max = 100, .help = "draw output tokens at this temperature; 0: the most likely ones",
	  .scope = RUN_WEIGHTS },
	{ .name = "method", .type = OPT_STR, .off = AT(methods), .arg = "LIST", .def = "dense",
	  .help = "methods or plans of layers, separated by commas; each is a run of its own",
	  .scope = RUN_COSTED, .may_differ = true },
	PART_OPT(evict, "give methods without /evict=NAME each of these parts, set off by commas"),
	PART_OPT(decode, "the same for /decode=NAME"),
	PART_OPT(prune, "the same for /prune=NAME"),
	PART_OPT(skip, "the same for /skip=NAME"),
	PLUGIN_OPT(AT(selectors)),
	{ .name = "match", .type = OPT_STR, .off = AT(match), .arg = "FIGURE=X",
	  .help = "tune the threshold of each method on the captures first, as attnreplay-tune(1) "
		  "does: recall=X, rel-l2=X or density=X",
	  .scope = RUN_KERNELS | RUN_CAPTURE | RUN_REPLAYED, .may_differ = true },
	{ .name = "page-size", .type = OPT_ENUM, .off = AT(page_size), .arg = "N|auto",
	  .def = "auto", .choice = page_sizes,
	  .help = "tokens of a page of the kernels' KV cache, 64 or 128; auto takes the block size "
		  "of the method", .scope = RUN_KERNELS | RUN_CAPTURE, .may_differ = true },
	{ .name = "layers", .type = OPT_STR, .off = AT(layers), .arg = "LIST",
	  .help = "captured layers to use, such as 0,4,8-11; all if not given",
	  .scope = RUN_COSTED | RUN_CAPTURE | RUN_REPLAYED },
	{ .name = "sample-layers", .type = OPT_INT, .off = AT(sample_layers), .arg = "K",
	  .def = "0", .max = 100000,
	  .help = "run K evenly spaced layers of the model and scale their time to all; 0: run all",
	  .scope = RUN_COSTED | RUN_CAPTURE | RUN_REPLAYED },
	{ .name = "extend", .type = OPT_ENUM, .off = AT(extend), .arg = "HOW", .def = "error",
	  .choice = extends,
	  .help = "if a request is longer than every capture: stop (error) or repeat the capture "
		  "(tile)",
	  .scope = RUN_COSTED | RUN_CAPTURE | RUN_REPLAYED },
	{ .name = "share-kv-across-methods", .type = OPT_FLAG, .off = AT(share_kv),
	  .help = "identify cached KV blocks by their tokens alone, not also by the method that "
		  "computed them", .scope = RUN_MODEL | RUN_PREFIX_CACHE },
	{ .name = "share-kv", .type = OPT_FLAG, .off = AT(limits.share_pages), .def = "yes",
	  .own = "yes",
	  .help = "let requests with a common prefix read the same pages of the device; else each "
		  "has its own copy, which is filled outside of the measured time",
	  .scope = RUN_KERNELS | RUN_PREFIX_CACHE },
	{ .name = "accuracy", .type = OPT_REAL, .off = AT(accuracy), .arg = "SHARE", .def = "0.05",
	  .max = 1,
	  .help = "share of the (request, prefill chunk, layer) triples to compare with dense "
		  "attention",
	  .scope = RUN_KERNELS | RUN_REFERENCE, .may_differ = true },
	{ .name = "accuracy-decode", .type = OPT_STR, .off = AT(decode_share), .arg = "SHARE|auto",
	  .def = "auto",
	  .help = "share of the decoded tokens to compare with dense attention, in all layers; "
		  "auto: that of --accuracy for methods with sparse decodes, else 0",
	  .scope = RUN_KERNELS | RUN_REFERENCE, .may_differ = true },
	{ .name = "hot-buffer", .type = OPT_STR, .off = AT(hot_buffer), .arg = "LIST|none",
	  .def = "1024,4096,16384",
	  .help = "tokens of a list that a GPU would keep, if the other keys were in the memory of "
		  "the host: count what decodes miss, for requests that --accuracy-decode draws",
	  .scope = RUN_KERNELS | RUN_REFERENCE, .may_differ = true },
	{ .name = "attention-only", .type = OPT_FLAG, .off = AT(attention_only),
	  .help = "run attention only, without projections, MLP and head",
	  .scope = RUN_COSTED | RUN_REPLAYED },
	{ .name = "seed", .type = OPT_INT, .off = AT(seed), .arg = "N", .def = "0", .max = 9e15,
	  .help = "seed of capture assignment, accuracy samples and drawn tokens",
	  .scope = RUN_KERNELS | RUN_CAPTURE },
	{ 0 }
};

static const struct opt gpu_opts[] = {
	{ .name = "prof", .type = OPT_ENUM, .off = AT(prof), .arg = "HOW", .def = "activity",
	  .choice = profs,
	  .help = "source of GPU times: CUPTI, for each kernel (activity), or CUDA events, for "
		  "whole iterations (events)",
	  .scope = RUN_GPU },
	{ .name = "keep-kernels", .type = OPT_INT, .off = AT(keep_kernels), .arg = "N", .def = "1",
	  .max = 1 << 30, .help = "store the kernels of every Nth iteration, 0: none",
	  .scope = RUN_GPU | RUN_DB | RUN_TRACED, .may_differ = true, .record_only = true },
	{ 0 }
};
/* clang-format on */

static const struct opt no_opts[] = { { 0 } };

static void set_groups(struct run_options *o, enum run_own own)
{
	struct opt_group *g = o->group;
	int n = 0;

	for (; policies[n]; n++) {
		assert(n < RUN_POLICIES_MAX);
		policy_names[n] = policies[n]->name;
	}
	for (int i = 0; policies[i]; i++)
		if (policies[i]->also)
			policy_names[n++] = policies[i]->also;
	policy_names[n] = NULL;
	for (n = 0; request_routers[n]; n++) {
		assert(n < RUN_ROUTERS_MAX);
		router_names[n] = request_routers[n]->name;
	}
	router_names[n] = NULL;
	g[RUN_GROUP_MAIN] = (struct opt_group){ .title = "Run", .opts = main_opts, .base = o };
	g[RUN_GROUP_COMMAND] = (struct opt_group){
		.title = "Summary, and commands that did not finish",
		.opts = own == RUN_OWN_ALL ? command_opts : no_opts,
		.base = o,
	};
	g[RUN_GROUP_RANKS] = (struct opt_group){ .title = "Ranks",
						 .opts = own ? rank_opts : no_opts,
						 .base = o };
	g[RUN_GROUP_TRACE] =
		(struct opt_group){ .title = "Trace", .opts = trace_opts, .base = &o->trace_args };
	g[RUN_GROUP_SCHED] =
		(struct opt_group){ .title = "Scheduler", .opts = sched_opts, .base = o };
	g[RUN_GROUP_MODEL] = (struct opt_group){ .title = "Model, captures and methods",
						 .opts = model_opts,
						 .base = o };
	g[RUN_GROUP_GPU] =
		(struct opt_group){ .title = "Profiling on a GPU", .opts = gpu_opts, .base = o };
	g += RUN_GROUP_BACKEND;
	for (int i = 0; backends[i]; i++) {
		assert(i < RUN_BACKENDS_MAX);
		snprintf(o->title[i], sizeof o->title[i], "Backend %s: %s", backends[i]->name,
			 backends[i]->title);
		g[i] = (struct opt_group){ .title = o->title[i],
					   .opts = backends[i]->opts ? backends[i]->opts : no_opts,
					   .base = o->backend_opts[i] };
	}
}

static bool is_named(const struct opt *opts, const char *name)
{
	while (opts && opts->name && strcmp(opts->name, name))
		opts++;
	return opts && opts->name;
}

static void show_but(const struct opt_group *g, const struct opt *hide,
		     void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt shown[65] = { 0 }; /* as many as a table may have, and its end */
	size_t n = 0;

	for (const struct opt *x = g->opts; x->name; x++)
		if (!is_named(hide, x->name))
			shown[n++] = *x;
	if (n)
		show((const struct opt_group[]){ { .title = g->title, .opts = shown }, { 0 } }, f);
}

void run_options_show(enum run_own own, const struct opt *hide,
		      void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct run_options o = { 0 };

	set_groups(&o, own);
	for (const struct opt_group *g = o.group; g->opts; g++)
		show_but(g, hide, show, f);
}

/* *has: there is a limit. */
static enum ar_status read_limit(const char *name, const char *value, bool *has, int64_t *limit,
				 struct ar_err *err)
{
	*has = strcmp(value, "none") != 0;
	if (!*has || (num_count(value, limit) && *limit >= 0))
		return AR_OK;
	return ar_fail(err, AR_USAGE, "%s '%s': want none or an integer from 0", name, value);
}

static enum ar_status read_queue(struct run_options *o, struct ar_err *err)
{
	struct front_limits *f = &o->front;
	enum ar_status st = read_limit("max-num-queued-reqs", o->queued_reqs, &f->has_reqs,
				       &f->reqs, err);

	return st ? st :
		    read_limit("max-num-queued-tokens", o->queued_tok, &f->has_tok, &f->tok, err);
}

static enum ar_status read_decode_share(struct run_options *o, struct ar_err *err)
{
	o->accuracy_decode = -1;
	if (!strcmp(o->decode_share, "auto") ||
	    (num_real(o->decode_share, &o->accuracy_decode) && o->accuracy_decode >= 0 &&
	     o->accuracy_decode <= 1))
		return AR_OK;
	return ar_fail(err, AR_USAGE, "accuracy-decode '%s': want auto or a number from 0 to 1",
		       o->decode_share);
}

static enum ar_status read_hot_buffer(struct run_options *o, struct ar_err *err)
{
	const char *p = o->hot_buffer;
	uint64_t v = 0, last = 0;

	o->n_hot_size = 0;
	if (!strcmp(p, "none"))
		return AR_OK;
	do {
		size_t len = strcspn(p, ",");

		if (o->n_hot_size == RUN_HOT_SIZES || !num_u64(p, len, &v) || v <= last ||
		    v > RUN_HOT_MOST)
			return ar_fail(err, AR_USAGE,
				       "hot-buffer '%s': want none, or up to %d ascending numbers "
				       "from 1 to %d",
				       o->hot_buffer, RUN_HOT_SIZES, RUN_HOT_MOST);
		o->hot_size[o->n_hot_size++] = (int64_t)v;
		last = v;
		p += len;
	} while (*p++ == ',');
	return AR_OK;
}

/* The budget must serve every running request at least one token, else some starve. */
static enum ar_status check_limits(struct run_options *o, struct ar_err *err)
{
	struct sched_limits *l = &o->limits;

	if (strcmp(o->num_blocks, "auto") && (!num_count(o->num_blocks, &l->num_blocks) ||
					      l->num_blocks < 2 || l->num_blocks > UINT32_MAX))
		return ar_fail(err, AR_USAGE,
			       "num-gpu-blocks '%s': want auto or an integer from 2 to %u",
			       o->num_blocks, UINT32_MAX);
	if (l->max_seqs > l->max_batched_tok)
		return ar_fail(err, AR_USAGE,
			       "max-num-seqs %" PRId64 " exceeds max-num-batched-tokens "
			       "%" PRId64 ": some running requests would get no token; lower it",
			       l->max_seqs, l->max_batched_tok);
	return AR_OK;
}

static enum ar_status check_names(const struct run_options *o, struct ar_err *err)
{
	char all[256] = "";
	size_t n = 0;

	if (!o->trace)
		return ar_fail(err, AR_USAGE, "no trace given; name one with --trace FILE");
	if (!HAVE_CUDA && !strcmp(o->backend, "cuda"))
		return ar_fail(err, AR_NODEV,
			       "backend cuda: this program was built without CUDA; "
			       "use --backend cpu or cost, or build it with CUDA");
	if (run_options_costs(o) && strcmp(o->backend, "cost"))
		return ar_fail(err, AR_USAGE,
			       "--costs needs --backend cost; add it, or leave --costs out");
	if (strcmp(o->backend, "auto") && !backend_find(o->backend)) {
		for (int i = 0; backends[i] && n < sizeof all; i++)
			n += (size_t)snprintf(all + n, sizeof all - n, ", %s", backends[i]->name);
		return ar_fail(err, AR_USAGE, "unknown backend '%s'; this program has auto%s",
			       o->backend, all);
	}
	return AR_OK;
}

/* Of another name, the policy that has it. */
static void use_policy_name(struct run_options *o)
{
	const struct policy *p = policy_find(policy_names[o->policy]);

	for (o->policy = 0; policies[o->policy] != p;)
		o->policy++;
}

static enum ar_status set_policy(struct run_options *o, struct ar_err *err)
{
	struct sched_limits *l = &o->limits;

	l->policy = policies[o->policy];
	if (!o->chunked)
		l->chunks = SCHED_CHUNKS_NONE;
	if (!opt_given(o->group, "watermark"))
		l->watermark = l->policy->watermark;
	return l->policy->check ? l->policy->check(l, err) : AR_OK;
}

enum ar_status run_options_read(struct run_options *o, struct opt_group *own, int *argc,
				char **argv, struct ar_err *err)
{
	const size_t n = sizeof o->group / sizeof *o->group;
	struct opt_group all[1 + sizeof o->group / sizeof *o->group];
	enum ar_status st = opt_init((struct opt_group[]){ *own, { 0 } }, err);

	all[0] = *own;
	memcpy(all + 1, o->group, n * sizeof *all);
	if (!st)
		st = opt_parse(all, argc, argv, err);
	memcpy(o->group, all + 1, n * sizeof *all);
	*own = all[0];
	return st;
}

/* Give the methods of --method the parts that have options of their own.  The record has the list
 * that this makes. */
static enum ar_status give_parts(struct run_options *o, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct part_kind *k = part_kinds; k->key && !st; k++) {
		struct opt_group *g = o->group;
		const struct opt *x = opt_find(&g, k->key, err);
		char **parts = (char **)((char *)g->base + x->off);

		if (*parts)
			st = plan_give_parts(&o->methods, k, *parts, err);
		free(*parts);
		*parts = NULL;
	}
	return st;
}

/* Parse the command line into the options of runs and the options of the command. */
static enum ar_status parse_all(struct run_options *o, struct run_command *c, int argc, char **argv,
				struct ar_err *err)
{
	struct opt_group none = { .opts = no_opts };
	enum ar_status st = run_options_read(o, c ? &c->own : &none, &argc, argv, err);

	if (!st && argc)
		st = ar_fail(err, AR_USAGE,
			     "unexpected operand '%s'; the trace is given with --trace", argv[0]);
	if (!st)
		st = give_parts(o, err);
	for (const struct run_setting *s = c ? c->setting : NULL; s && s->name && !st; s++)
		st = opt_set(o->group, s->name, s->value, err);
	if (!st && c && c->parsed)
		st = c->parsed(c, o, err);
	return st;
}

enum ar_status run_options_init(struct run_options *o, enum run_own own, struct ar_err *err)
{
	*o = (struct run_options){ .repeats = 1 };
	for (int i = 0; backends[i]; i++) {
		o->backend_opts[i] = calloc(1, backends[i]->opts_size + 1);
		if (!o->backend_opts[i])
			return ar_nomem(err);
	}
	set_groups(o, own);
	return opt_init(o->group, err);
}

enum ar_status run_options_parse(struct run_options *o, struct run_command *c, int argc,
				 char **argv, struct ar_err *err)
{
	enum ar_status st = run_options_init(o, c ? c->run_own : RUN_OWN_ALL, err);

	if (st)
		return st;
	o->costs = c ? c->costs : NULL;
	st = parse_all(o, c, argc, argv, err);
	if (!st && o->resume)
		st = resume_open(&o->resumed, o->resume, err);
	if (!st && o->resume)
		st = run_options_resume(o, err);
	use_policy_name(o);
	if (!st && o->engine_args && !o->resumed)
		st = run_engine_args(o, err);
	if (!st)
		st = run_options_split_densities(o, err);
	if (!st)
		st = check_names(o, err);
	if (!st && o->slo)
		st = slo_parse(&o->objectives, o->slo, false, err);
	if (!st)
		st = run_options_check_early(o, err);
	if (!st)
		st = run_engine_defaults(o, NULL, err);
	if (!st)
		st = read_queue(o, err);
	if (!st)
		st = read_decode_share(o, err);
	if (!st)
		st = read_hot_buffer(o, err);
	if (!st)
		st = run_read_apart(o, err);
	if (!st)
		st = set_policy(o, err);
	return st ? st : check_limits(o, err);
}

void run_options_release(struct run_options *o)
{
	opt_release(o->group);
	resume_close(o->resumed);
	for (int i = 0; i < RUN_BACKENDS_MAX; i++)
		free(o->backend_opts[i]);
	*o = (struct run_options){ 0 };
}

struct router_rule run_options_route(const struct run_options *o)
{
	return (struct router_rule){ .router = request_routers[o->router],
				     .replicas = o->replicas,
				     .stats_ns = o->router_stats_ns,
				     .seed = (uint64_t)o->router_seed };
}

const void *run_options_of(const struct run_options *o, const struct backend *b)
{
	for (int i = 0; backends[i]; i++)
		if (backends[i] == b)
			return o->backend_opts[i];
	return NULL;
}

const char *run_options_costs(const struct run_options *o)
{
	const struct cost_options *c = run_options_of(o, &backend_cost);

	return c->costs;
}
