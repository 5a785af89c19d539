/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/known_files.h"

#include <cjson/cJSON.h>
#include <string.h>

#define TEXTS "a trace of texts, which have no token counts"
#define SERVE "a result of 'vllm bench serve' or of SGLang's bench_serving"
#define PRINTED "lines that an engine prints, without requests"
#define STEPS "a step log of an engine"
#define BLIS "a result of BLIS (inference-sim)"

/* clang-format off */
static const struct known_file files[] = {
	{ RECORD_JSON, { "metadata", "metrics" }, NULL,
	  "records of requests by aiperf", "import-engine" },
	{ RECORD_JSON, { "input_lens" }, NULL, SERVE, "import-engine" },
	{ RECORD_JSON, { "ttfts" }, NULL, SERVE, "import-engine" },
	{ RECORD_JSON, { "engine" }, NULL, STEPS, "import-engine" },
	{ RECORD_JSON, { "begin", "end", "tokens" }, NULL, STEPS, "import-engine" },
	{ RECORD_JSON, { "steps" }, NULL, STEPS, "import-engine" },
	{ RECORD_JSON, { "benchmarks" }, NULL, "a report of guidellm", NULL },
	{ RECORD_JSON, { "request", "response", "info" }, NULL,
	  "a report of inference-perf", NULL },
	{ RECORD_JSON, { "vllm_estimated_duration_s" }, NULL, BLIS, NULL },
	{ RECORD_JSON, { "num_prefill_tokens", "ttft_ms" }, NULL, BLIS, NULL },
	{ RECORD_JSON, { "schema", "event_type" }, NULL, "a request trace of Dynamo", NULL },
	{ RECORD_JSON, { "event" }, NULL, "a request trace of Dynamo", NULL },
	{ RECORD_JSON, { "input_toks" }, NULL,
	  "an LLMServingSim record without \"arrival_time_ns\"", NULL },
	{ RECORD_JSON, { "turns" }, NULL,
	  "an aiperf multi-turn file, whose texts have no token counts", NULL },
	{ RECORD_JSON, { "requests" }, NULL,
	  "an AIBrix workload or a trace of whole sessions", NULL },
	{ RECORD_JSON, { "timing_events" }, NULL,
	  "a TraceLab trace without \"session_id\" or a length", NULL },
	{ RECORD_JSON, { "captureData" }, NULL, "data captured by SageMaker", NULL },
	{ RECORD_JSON, { "delay" }, NULL,
	  "a trace of sessions without \"session_id\" or a length", NULL },
	{ RECORD_JSON, { "text_input" }, NULL, TEXTS, NULL },
	{ RECORD_JSON, { "messages" }, NULL, TEXTS, NULL },
	{ RECORD_JSON, { "payload" }, NULL, TEXTS, NULL },
	{ RECORD_JSON, { "text" }, NULL, TEXTS, NULL },
	{ RECORD_JSON, { "texts" }, NULL, TEXTS, NULL },
	{ RECORD_JSON, { "prompt" }, NULL, TEXTS, NULL },
	{ RECORD_CSV, { "arrival_time" }, NULL, "a Vidur file of dates", NULL },
	{ RECORD_CSV, { "request_num_prefill_tokens" }, NULL, "a result of Vidur", NULL },
	{ RECORD_CSV, { "num_prefill_tokens" }, NULL,
	  "a Vidur file without \"arrived_at\"", NULL },
	{ RECORD_CSV, { "queuing_delay", "TTFT", "TPOT" }, NULL,
	  "a result of LLMServingSim", NULL },
	{ RECORD_CSV, { NULL }, "INFO ", PRINTED, NULL },
	{ RECORD_CSV, { NULL }, "(EngineCore", PRINTED, NULL },
	{ RECORD_CSV, { NULL }, "(APIServer", PRINTED, NULL },
};
/* clang-format on */

const struct known_file *known_file(const struct record *first)
{
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		const struct known_file *f = &files[i];
		bool fits = f->kind == first->kind;

		for (int k = 0; k < 3 && f->field[k]; k++)
			fits = fits && record_has(first, f->field[k]);
		if (f->start)
			fits = fits && first->n &&
			       !strncmp(first->field[0].name, f->start, strlen(f->start));
		if (fits)
			return f;
	}
	return NULL;
}

bool known_file_names(struct record *r, const cJSON *v)
{
	const cJSON *object = cJSON_IsArray(v) ? v->child : v, *member;

	*r = (struct record){ .kind = RECORD_JSON };
	if (!cJSON_IsObject(object))
		return false;
	cJSON_ArrayForEach(member, object)
		if (r->n < RECORD_MAX_FIELDS)
			r->field[r->n++].name = member->string;
	return true;
}
