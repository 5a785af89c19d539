/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of engines: each form, each message, and allocations that fail. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/engine/engine_log.h"

static char dir[] = "/tmp/t-engine-log-XXXXXX";
static char path[64];

static struct engine_log *open_bytes(const void *data, size_t n, struct ar_err *err)
{
	struct engine_log *log;

	*err = (struct ar_err){ 0 };
	file_write(path, data, n);
	if (engine_log_open(&log, path, err) && log)
		bail_out("a log in spite of an error");
	return log;
}

static struct engine_log *open_text(const char *text)
{
	struct ar_err err;
	struct engine_log *log = open_bytes(text, strlen(text), &err);

	if (!log)
		bail_out("%s", err.msg);
	return log;
}

/* ---- forms ---- */

#define HEADER \
	"{\"engine\":\"vllm\",\"version\":\"0.24.0\",\"gpu\":\"NVIDIA H200\",\"async\":true," \
	"\"max_num_batched_tokens\":8192,\"max_num_seqs\":256," \
	"\"cudagraph_capture_sizes\":[4,1,2],\"model\":{\"hidden_size\":64}," \
	"\"front\":\"http\",\"probe\":{\"loop_ns\":20}}\n"
#define STEPS \
	"{\"begin\":0.5,\"end\":0.502,\"tokens\":[100,7],\"requests\":[0,\"b\"]," \
	"\"schedule\":1e-4,\"execute\":2e-4,\"wait\":3e-4,\"update\":4e-5}\n" \
	"{\"begin\":0.502,\"end\":0.503,\"tokens\":[1],\"requests\":[\"b\"]," \
	"\"seen\":[0.504,2]}\n" \
	"{\"begin\":0.503,\"end\":0.503,\"tokens\":[]}\n"
#define STEP_SEEN "{\"begin\":1,\"end\":2,\"tokens\":[1],\"seen\":"
#define REQUESTS \
	"{\"request\":0,\"arrival\":0.25,\"prompt_tokens\":100,\"output_tokens\":3," \
	"\"first_token\":0.502,\"last_token\":0.504,\"admit\":1e-5," \
	"\"received\":0.26}\n" \
	"{\"request\":\"b\",\"prompt_tokens\":7,\"output_tokens\":1,\"first_token\":0.5," \
	"\"last_token\":0.5,\"arrival\":null}\n"

static bool same_request(const struct engine_request *a, const struct engine_request *b)
{
	return a->prompt_tok == b->prompt_tok && a->output_tok == b->output_tok &&
	       a->arrival_ns == b->arrival_ns && a->first_token_ns == b->first_token_ns &&
	       a->last_token_ns == b->last_token_ns && a->ttft_ns == b->ttft_ns &&
	       a->tpot_ns == b->tpot_ns && a->admit_ns == b->admit_ns &&
	       a->received_ns == b->received_ns;
}

static bool is_request(const struct engine_log *log, size_t i, struct engine_request want)
{
	return i < log->n_request && same_request(&log->request[i], &want);
}

static bool has_parts(const struct engine_step *s, const int64_t part_ns[ENGINE_PARTS])
{
	return !memcmp(s->part_ns, part_ns, sizeof s->part_ns);
}

static void test_lines(void)
{
	struct engine_log *log = open_text(HEADER STEPS "\n" REQUESTS);
	const struct engine_step *s = log->step;

	ok(!strcmp(log->name, "log") && !strcmp(log->engine, "vllm") &&
		   !strcmp(log->version, "0.24.0") && !strcmp(log->gpu, "NVIDIA H200") &&
		   !strcmp(log->model_json, "{\"hidden_size\":64}") && log->async == 1 &&
		   log->max_batched_tok == 8192 && log->max_seqs == 256,
	   "the header");
	ok(log->n_capture_size == 3 && log->capture_size[0] == 1 && log->capture_size[1] == 2 &&
		   log->capture_size[2] == 4,
	   "sizes of graphs are in ascending order");
	ok(log->n_step == 3 && s[0].begin_ns == 500000000 && s[0].end_ns == 502000000 &&
		   s[0].first == 0 && s[0].n_entry == 2 && s[1].first == 2 && s[1].n_entry == 1 &&
		   s[2].first == 3 && s[2].n_entry == 0,
	   "steps");
	ok(has_parts(&s[0], (int64_t[]){ 100000, 200000, 300000, 40000 }) &&
		   has_parts(&s[1], (int64_t[]){ -1, -1, -1, -1 }),
	   "their parts, if there are such");
	ok(log->n_entry == 3 && log->entry[0].n_tok == 100 && log->entry[0].req == 0 &&
		   log->entry[1].n_tok == 7 && log->entry[1].req == 1 && log->entry[2].req == 1,
	   "entries name requests by place and by name");
	ok(log->n_request == 2 &&
		   is_request(log, 0,
			      (struct engine_request){ 100, 3, 250000000, 502000000, 504000000,
						       252000000, 1000000, 10000, 260000000 }) &&
		   is_request(log, 1,
			      (struct engine_request){ 7, 1, -1, 500000000, 500000000, -1, -1, -1,
						       -1 }),
	   "requests, with TTFT and TPOT where they can be had");
	ok(log->step[0].seen_ns == -1 && log->step[1].seen_ns == 504000000 &&
		   log->step[1].n_seen == 2 && log->http && log->probe.ns[PROBE_LOOP] == 20 &&
		   !log->probe.ns[PROBE_GRAPH],
	   "what the front end did, and how fast the host is");
	engine_log_close(log);
	log = open_text(STEPS);
	ok(log->n_request == 0 && log->entry[0].req == -1 && log->entry[1].req == -1 &&
		   log->async == -1 && !log->engine && !log->model_json && !log->max_seqs,
	   "a log that ends early has steps, of requests unknown");
	engine_log_close(log);
	engine_log_close(NULL);
}

static void test_object(void)
{
	struct engine_log *log = open_text(
		"{\"engine\":\"vLLM 0.24.0\",\"scheduling\":\"sync\",\"budget\":512,\n"
		" \"max_num_seqs\":8,\"model\":\"m.json\",\n"
		" \"steps\":[[0,0.5,[3,4]],\n  [0.5,0.75,[]]],\n"
		" \"ttft\":[1.5,null],\"tpot\":[null,0.25]}\n");

	ok(!strcmp(log->engine, "vllm") && !strcmp(log->version, "0.24.0") && !log->gpu &&
		   !log->model_json && log->async == 0 && log->max_batched_tok == 512 &&
		   log->max_seqs == 8,
	   "the members of one object on several lines");
	ok(log->n_step == 2 && log->step[0].n_entry == 2 && log->entry[1].n_tok == 4 &&
		   log->entry[1].req == -1 && log->step[1].begin_ns == 500000000 &&
		   log->step[1].n_entry == 0,
	   "its steps");
	ok(log->n_request == 2 &&
		   is_request(log, 0,
			      (struct engine_request){ 0, 0, -1, -1, -1, 1500000, -1, -1, -1 }) &&
		   is_request(log, 1,
			      (struct engine_request){ 0, 0, -1, -1, -1, -1, 250000, -1, -1 }),
	   "its latencies");
	engine_log_close(log);
	log = open_text("{\"engine\":\"a b\",\"version\":\"2\",\"scheduling\":\"async\"}\n" STEPS);
	ok(!strcmp(log->engine, "a") && !strcmp(log->version, "2") && log->async == 1,
	   "a member \"version\" counts more than the engine's name");
	engine_log_close(log);
	log = open_text("[[0,1,[5]]]");
	ok(log->n_step == 1 && log->n_entry == 1 && log->n_request == 0, "a bare array of steps");
	engine_log_close(log);
	log = open_text("{\"steps\":[],\"tpot\":[2]}");
	ok(log->n_request == 1 && log->request->tpot_ns == 2000000 && log->request->ttft_ns == -1,
	   "TPOT alone");
	engine_log_close(log);
}

#define BENCH(more) \
	"{\"input_lens\":[5,6,7],\"output_lens\":[3,1,0],\"ttfts\":[0.5,0.25,0.0]" more "}"
#define ITLS ",\"itls\":[[0.5,1.0],[],[]]"

static void test_bench(void)
{
	struct engine_log *log = open_text(BENCH(ITLS ",\"start_times\":[100.5,100,101]"));

	ok(log->n_step == 0 && log->n_request == 3 &&
		   is_request(log, 0,
			      (struct engine_request){ 5, 3, 500000000, 1000000000, 2500000000,
						       500000000, 750000000, -1, -1 }) &&
		   is_request(log, 1,
			      (struct engine_request){ 6, 1, 0, 250000000, 250000000, 250000000, -1,
						       -1, -1 }) &&
		   is_request(log, 2,
			      (struct engine_request){ 7, 0, 1000000000, -1, -1, -1, -1, -1, -1 }),
	   "vllm bench serve; a request that failed has no times");
	engine_log_close(log);
	log = open_text(BENCH(ITLS));
	ok(is_request(log, 0,
		      (struct engine_request){ 5, 3, -1, -1, -1, 500000000, 750000000, -1, -1 }),
	   "of a version without start_times");
	engine_log_close(log);
	log = open_text(BENCH(""));
	ok(is_request(log, 0, (struct engine_request){ 5, 3, -1, -1, -1, 500000000, -1, -1, -1 }),
	   "and without itls");
	engine_log_close(log);
	log = open_text(BENCH(",\"start_times\":[0,0,0]"));
	ok(is_request(log, 0,
		      (struct engine_request){ 5, 3, 0, 500000000, -1, 500000000, -1, -1, -1 }),
	   "with starts alone");
	engine_log_close(log);
}

#define AIPERF(start, session, metrics) \
	"{\"metadata\":{\"session_num\":" #session ",\"request_start_ns\":" #start \
	"},\"metrics\":{" metrics "},\"error\":null}\n"
#define LEN(key, n) "\"" key "\":{\"value\":" #n ",\"unit\":\"tokens\"}"
#define MS(key, ms) "\"" key "\":{\"value\":" #ms ",\"unit\":\"ms\"}"

#define SERVED \
	LEN("input_sequence_length", 550) \
	"," LEN("output_sequence_length", 9) "," MS("time_to_first_token", 250.5) "," MS( \
		"inter_token_latency", 5.25) "," MS("request_latency", 292.5)
#define WARMUP "{\"metadata\":{\"benchmark_phase\":\"warmup\"},\"metrics\":{}}\n"

static void test_aiperf(void)
{
	static const char text[] = AIPERF(1759813208000000000, 1, SERVED)
		AIPERF(1759813207000000000, 3, LEN("error_isl", 12))
			AIPERF(1759813207000000000, 0, MS("request_latency", 3)) WARMUP;
	struct engine_log *log = open_text(text);

	ok(log->n_request == 3 &&
		   is_request(log, 2,
			      (struct engine_request){ 550, 9, 1000000000, 1250500000, 1292500000,
						       250500000, 5250000, -1, -1 }),
	   "aiperf");
	ok(is_request(log, 0, (struct engine_request){ 0, 0, 0, -1, -1, -1, -1, -1, -1 }) &&
		   is_request(log, 1, (struct engine_request){ 12, 0, 0, -1, -1, -1, -1, -1, -1 }),
	   "its requests are in order of start, then session");
	engine_log_close(log);
}

/* The first steps of a run of vLLM 0.24.0 on an H200. */
static void test_data(void)
{
	const char *srcdir = getenv("srcdir");
	char file[4096];
	struct engine_log *log;
	struct ar_err err = { 0 };
	uint64_t tok = 0;

	snprintf(file, sizeof file, "%s/tests/data/vllm-steps-40.json", srcdir ? srcdir : ".");
	if (engine_log_open(&log, file, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < log->n_entry; i++)
		tok += log->entry[i].n_tok;
	ok(!strcmp(log->name, "vllm-steps-40.json") && !strcmp(log->gpu, "NVIDIA H200") &&
		   log->async == 1 && log->n_step == 40 && log->step[0].n_entry == 4 &&
		   log->step[0].begin_ns == 63580000 && log->n_request == 8 &&
		   log->request[0].ttft_ns > 0 && log->request[0].tpot_ns > 0,
	   "a run of vLLM");
	diag("%zu entries, %llu tokens", log->n_entry, (unsigned long long)tok);
	engine_log_close(log);
}

static size_t gzip(void *out, size_t cap, const char *text)
{
	z_stream z = { .next_out = out, .avail_out = (uInt)cap };

	z.next_in = (unsigned char *)(uintptr_t)text;
	z.avail_in = (uInt)strlen(text);
	if (deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) ||
	    deflate(&z, Z_FINISH) != Z_STREAM_END)
		bail_out("no gzip");
	deflateEnd(&z);
	return cap - z.avail_out;
}

static void test_compressed(void)
{
	char buf[4096];
	struct ar_err err;
	struct engine_log *log = open_bytes(buf, gzip(buf, sizeof buf, HEADER STEPS REQUESTS),
					    &err);

	ok(log && log->n_step == 3 && log->n_request == 2, "a log compressed by gzip: %s", err.msg);
	engine_log_close(log);
	log = open_bytes(buf, ZSTD_compress(buf, sizeof buf, HEADER STEPS, strlen(HEADER STEPS), 1),
			 &err);
	ok(log && log->n_step == 3, "... by zstd: %s", err.msg);
	engine_log_close(log);
}

/* ---- faults ---- */

#define STEP(begin, end, more) "{\"begin\":" #begin ",\"end\":" #end ",\"tokens\":[1]" more "}\n"

#define VI "arrived_at,num_prefill_tokens,num_decode_tokens\n"
#define LOGS \
	"a log is one of contrib/vllm_steps.py, a JSON object with \"steps\", a result of 'vllm " \
	"bench serve --save-detailed', or profile_export.jsonl of aiperf"

static const struct fault {
	const char *text, *message; /* after the path */
} faults[] = {
	{ "", ": neither steps nor requests in the log" },
	{ HEADER, ": neither steps nor requests in the log" },
	{ "{\"steps\":[]}", ": neither steps nor requests in the log" },
	{ "{}\n", ":1: unknown kind of file; " LOGS },
	{ HEADER "7\n",
	  ":2: neither a step, a request nor a header of a log; see attnreplay-import-engine(1)" },
	{ "{\"engine\":\n 1,\n x}", ":3: not JSON" },
	/* other files */
	{ "{\"benchmarks\":[]}", ":1: this looks like a report of guidellm; " LOGS },
	{ "[{\"start_time\":1,\"request\":\"{}\",\"response\":\"x\",\"info\":{}}]",
	  ":1: this looks like a report of inference-perf; " LOGS },
	{ "request_id,arrival,input,output,queuing_delay,TTFT,TPOT,ITL\n0,0,1,5,0,1,2,\"[1]\"\n",
	  ":1: this looks like a result of LLMServingSim; " LOGS },
	{ "Request Id,request_num_prefill_tokens\n0,0\n",
	  ":1: this looks like a result of Vidur; " LOGS },
	{ "{\n \"instance_id\": \"a\",\n \"vllm_estimated_duration_s\": 3\n}",
	  ": this looks like a result of BLIS (inference-sim); " LOGS },
	{ "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\"}\n{}\n",
	  ":1: this looks like a request trace of Dynamo; " LOGS },
	{ "INFO 11-26 10:00:01 [loggers.py:127] Engine 000: Avg prompt throughput: 1.0, b\n",
	  ":1: this looks like lines that an engine prints, without requests; " LOGS },
	{ "[{\"a\":1}]", ":1: unknown kind of file; " LOGS },
	{ "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",
	  ":1: this is a trace of requests (mooncake), which 'attnreplay run --trace' reads" },
	{ VI "0,1,1\n",
	  ":1: this is a trace of requests (vidur), which 'attnreplay run --trace' reads" },
	{ "x\n" STEPS, ":1: not JSON" },
	{ STEPS "x\n", ":4: not JSON" },
	/* kinds */
	{ HEADER HEADER, ":2: a second header; want one log in a file" },
	{ STEPS "[[1,2,[3]]]\n",
	  ":4: a second log of another kind or run; want one log in a file" },
	{ BENCH("") "\n" BENCH(""),
	  ": a second log of another kind or run; want one log in a file" },
	{ STEPS AIPERF(1, 1, ""),
	  ":4: a second log of another kind or run; want one log in a file" },
	/* headers */
	{ "{\"engine\":1}\n", ":1: engine: want a text" },
	{ "{\"engine\":\"a\",\"version\":1}\n", ":1: version: want a text" },
	{ "{\"engine\":\"a\",\"gpu\":[]}\n", ":1: gpu: want a text" },
	{ "{\"engine\":\"a\",\"async\":1}\n", ":1: async: want true or false" },
	{ "{\"engine\":\"a\",\"scheduling\":\"x\"}\n",
	  ":1: scheduling: want \"async\" or \"sync\"" },
	{ "{\"engine\":\"a\",\"scheduling\":1}\n", ":1: scheduling: want \"async\" or \"sync\"" },
	{ "{\"engine\":\"a\",\"budget\":0}\n", ":1: budget: want an integer from 1 on" },
	{ "{\"engine\":\"a\",\"max_num_batched_tokens\":1.5}\n",
	  ":1: max_num_batched_tokens: want an integer from 1 on" },
	{ "{\"engine\":\"a\",\"max_num_seqs\":\"1\"}\n",
	  ":1: max_num_seqs: want an integer from 1 on" },
	{ "{\"engine\":\"a\",\"cudagraph_capture_sizes\":1}\n",
	  ":1: cudagraph_capture_sizes: want an array" },
	{ "{\"engine\":\"a\",\"cudagraph_capture_sizes\":[1,0]}\n",
	  ":1: cudagraph_capture_sizes: want integers from 1 to 2147483647" },
	/* steps */
	{ STEP(-1, 2, ""), ":1: begin: want seconds from 0 to 2e9" },
	{ STEP(1, 1e999, ""), ":1: end: want seconds from 0 to 2e9" },
	{ STEP(1, "2", ""), ":1: end: want seconds from 0 to 2e9" },
	{ "{\"begin\":1}\n", ":1: end: want seconds from 0 to 2e9" },
	{ STEP(2, 1, ""), ":1: the step ends before it begins" },
	{ STEP(2, 3, "") STEP(1, 4, ""),
	  ":2: the step begins before the previous one; sort the steps by begin" },
	{ STEP(1, 2, ",\"execute\":-1"), ":1: execute: want seconds from 0 to 2e9" },
	{ "{\"begin\":1,\"end\":2}\n",
	  ":1: tokens: want an array of integers from 1 to 2147483647" },
	{ "{\"begin\":1,\"end\":2,\"tokens\":[0]}\n",
	  ":1: tokens: want an array of integers from 1 to 2147483647" },
	{ "{\"begin\":1,\"end\":2,\"tokens\":[2147483648]}\n",
	  ":1: tokens: want an array of integers from 1 to 2147483647" },
	{ STEP(1, 2, ",\"requests\":1"), ":1: requests: want an array" },
	{ STEP(1, 2, ",\"requests\":[1,2]"), ":1: requests has 2 numbers, tokens has 1" },
	{ STEP(1, 2, ",\"requests\":[-1]"),
	  ":1: requests: want an array of texts or of integers from 0 on" },
	{ STEP(1, 2, ",\"requests\":[2]") REQUESTS,
	  ": step 0 ran request 2, but the log has 2 requests" },
	{ STEP(1, 2, "") STEP(2, 3, ",\"requests\":[\"c\"]") REQUESTS,
	  ": step 1 ran request \"c\", which has no line of its own" },
	{ "[[1,2,[3]],[1,2]]", ": step 1: want [begin, end, [tokens, ...]]" },
	{ STEP_SEEN "1}\n", ":1: seen: want an array" },
	{ STEP_SEEN "[1]}\n", ":1: seen: want [seconds from 0 to 2e9, a number of tokens]" },
	{ STEP_SEEN "[1,0]}\n", ":1: seen: want [seconds from 0 to 2e9, a number of tokens]" },
	{ STEP_SEEN "[-1,1]}\n", ":1: seen: want [seconds from 0 to 2e9, a number of tokens]" },
	{ "{\"engine\":\"x\",\"front\":1}\n", ":1: front: want a text" },
	{ "{\"engine\":\"x\",\"probe\":{\"loop_ns\":0}}\n",
	  ":1: probe: want what 'attnreplay bench host --json' writes" },
	{ "[1]", ": step 0: want [begin, end, [tokens, ...]]" },
	{ "[[\"a\",2,[3]]]", ": step 0: begin: want seconds from 0 to 2e9" },
	{ "[[1,2,3]]", ": step 0: tokens: want an array of integers from 1 to 2147483647" },
	{ "{\"steps\":1}", ": steps: want an array" },
	/* requests */
	{ "{\"request\":1}\n",
	  ":1: request 1 is number 0 in the file; write the requests in order, from 0" },
	{ "{\"request\":1.5}\n", ":1: request: want a text or an integer from 0 on" },
	{ "{\"request\":\"a\"}\n{\"request\":\"a\"}\n", ":2: request \"a\" has a line already" },
	{ "{\"request\":0,\"prompt_tokens\":-1}\n",
	  ":1: prompt_tokens: want an integer from 0 to 2147483647" },
	{ "{\"request\":0,\"output_tokens\":1e10}\n",
	  ":1: output_tokens: want an integer from 0 to 2147483647" },
	{ "{\"request\":0,\"arrival\":\"now\"}\n", ":1: arrival: want seconds from 0 to 2e9" },
	{ "{\"request\":0,\"first_token\":-1}\n", ":1: first_token: want seconds from 0 to 2e9" },
	{ "{\"request\":0,\"last_token\":1e10}\n", ":1: last_token: want seconds from 0 to 2e9" },
	{ "{\"request\":0,\"admit\":true}\n", ":1: admit: want seconds from 0 to 2e9" },
	{ "{\"request\":0,\"received\":-1}\n", ":1: received: want seconds from 0 to 2e9" },
	{ "{\"request\":0,\"arrival\":2,\"first_token\":1}\n",
	  ":1: the first token comes before the arrival" },
	{ "{\"request\":0,\"first_token\":2,\"last_token\":1}\n",
	  ":1: the last token comes before the first" },
	{ "{\"steps\":[],\"ttft\":[1,2],\"tpot\":[1]}",
	  ": 2 values in ttft and 1 in tpot; want null in tpot for a request of one output "
	  "token" },
	{ "{\"steps\":[],\"ttft\":[-1]}", ": ttft: want milliseconds from 0 to 2e12" },
	{ "{\"steps\":[],\"tpot\":[\"1\"]}", ": tpot: want milliseconds from 0 to 2e12" },
	{ "{\"steps\":[],\"ttft\":1}", ": ttft: want an array" },
	{ "{\"steps\":[],\"tpot\":1}", ": tpot: want an array" },
	/* vllm bench serve */
	{ "{\"input_lens\":[],\"ttfts\":[]}",
	  ": the result lacks \"output_lens\"; run 'vllm bench serve' with --save-detailed" },
	{ "{\"ttfts\":[1]}",
	  ": the result lacks \"input_lens\"; run 'vllm bench serve' with --save-detailed" },
	{ "{\"input_lens\":[1],\"output_lens\":[]}",
	  ": 0 values in output_lens and 1 in input_lens" },
	{ "{\"input_lens\":1}", ": input_lens: want an array" },
	{ "{\"input_lens\":[-1],\"output_lens\":[1],\"ttfts\":[1]}",
	  ": request 0: input_lens: want integers from 0 to 2147483647" },
	{ "{\"input_lens\":[1],\"output_lens\":[null],\"ttfts\":[1]}",
	  ": request 0: output_lens: want integers from 0 to 2147483647" },
	{ "{\"input_lens\":[1],\"output_lens\":[1],\"ttfts\":[-1]}",
	  ": request 0: ttfts: want seconds from 0 to 2e9" },
	{ BENCH(",\"itls\":[[],1,[]]"), ": request 1: itls: want arrays of seconds from 0 to 2e9" },
	{ BENCH(",\"itls\":[[],[],[-1]]"),
	  ": request 2: itls: want arrays of seconds from 0 to 2e9" },
	{ BENCH(",\"start_times\":[1,-1,1]"),
	  ": request 1: start_times: want seconds from 0 to 2e9" },
	/* aiperf */
	{ AIPERF(-1, 0, ""), ":1: request_start_ns: want ns from 0 to 4e18" },
	{ AIPERF(0, -1, ""), ":1: session_num: want an integer from 0 on" },
	{ AIPERF(0, 0, "\"error_isl\":{\"unit\":\"tokens\"}"),
	  ":1: error_isl: want a value in tokens" },
	{ AIPERF(0, 0, LEN("input_sequence_length", -1)),
	  ":1: input_sequence_length: want an integer from 0 to 2147483647" },
	{ AIPERF(0, 0, LEN("output_sequence_length", [])),
	  ":1: output_sequence_length: want an integer from 0 to 2147483647" },
	{ AIPERF(0, 0, "\"time_to_first_token\":{\"value\":1,\"unit\":\"s\"}"),
	  ":1: time_to_first_token: want a value in ms" },
	{ AIPERF(0, 0, MS("inter_token_latency", -1)),
	  ":1: inter_token_latency: want milliseconds from 0 to 2e12" },
	{ AIPERF(0, 0, MS("request_latency", "1")),
	  ":1: request_latency: want milliseconds from 0 to 2e12" },
	{ AIPERF(0, 0, MS("time_to_first_token", 2) "," MS("request_latency", 1)),
	  ":1: request_latency is less than time_to_first_token" },
};

static void test_faults(void)
{
	struct ar_err err;
	struct engine_log *log;

	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		log = open_bytes(faults[i].text, strlen(faults[i].text), &err);
		ok(!log && err.status == AR_DATA && !strncmp(err.msg, path, strlen(path)) &&
			   !strcmp(err.msg + strlen(path), faults[i].message),
		   "%s%s", err.msg + (log ? 0 : strlen(path)), log ? "no failure" : "");
		engine_log_close(log);
	}
	ok(engine_log_open(&log, "/no/such/log", &err) == AR_DATA && !log &&
		   !strcmp(err.msg, "/no/such/log: No such file or directory"),
	   "a missing file");
}

/* An object of more than 64 MiB on several lines. */
static void test_large(void)
{
	enum { LINE = 1 << 20, LINES = 65 };
	char *text = malloc(LINES * LINE), *out;
	size_t cap = ZSTD_compressBound(LINES * LINE);
	struct ar_err err;

	out = malloc(cap);
	memset(text, ' ', LINES * LINE);
	text[0] = '{';
	for (size_t i = 1; i <= LINES; i++)
		text[i * LINE - 1] = '\n';
	ok(!open_bytes(out, ZSTD_compress(out, cap, text, LINES * LINE, 1), &err) &&
		   !strcmp(err.msg + strlen(path),
			   ":1: a value of more than 64 MiB; write one on each line"),
	   "a large object: %s", err.msg);
	free(text);
	free(out);
}

/* Each allocation fails in turn. */
static void survive(const char *text, const char *what)
{
	long n = 0, bad = 0;
	struct ar_err err;
	struct engine_log *log;

	file_write(path, text, strlen(text));
	for (long k = 0;; k++, n++) {
		enum ar_status st;

		fault_arm(k);
		st = engine_log_open(&log, path, &err);
		if (!fault_disarm())
			break;
		bad += st != AR_NOMEM || log;
		engine_log_close(log);
	}
	engine_log_close(log);
	ok(n > 3 && !bad, "%s: each of %ld allocations fails cleanly", what, n);
}

int main(void)
{
	plan(0);
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	snprintf(path, sizeof path, "%s/log", dir);
	test_lines();
	test_object();
	test_bench();
	test_aiperf();
	test_data();
	test_compressed();
	test_faults();
	test_large();
	survive(HEADER STEPS REQUESTS, "lines");
	survive("{\"engine\":\"a b\",\n\"steps\":\n[[0,1,[1]]],\n\"ttft\":[1]\n\n}", "an object");
	survive(BENCH(ITLS ",\"start_times\":[0,0,0]"), "vllm bench serve");
	survive(AIPERF(0, 0, LEN("error_isl", 1)), "aiperf");
	unlink(path);
	rmdir(dir);
	return done_testing();
}
