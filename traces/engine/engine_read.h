/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the readers of all forms of a log.  Messages lack file and line: engine_log.c adds
 * them. */
#ifndef AR_ENGINE_READ_H
#define AR_ENGINE_READ_H

#include <cjson/cJSON.h>

#include "traces/engine/engine_log.h"
#include "traces/intern.h"

/* The last time.  The sum of an arrival and two latencies is less than 2^63 ns. */
#define READING_LAST_S 2e9
#define READING_S 1e9 /* ns */
#define READING_MS 1e6

/* The form of a file. */
enum reading_kind { NOTHING, OWN_LINES, AIPERF_LINES, ONE_VALUE };

/* A record of aiperf, which are in order of their ends. */
struct started {
	double ns; /* since 1970 */
	int64_t session;
	struct engine_request q;
};

struct reading {
	struct engine_log *log;
	const char *path;
	uint64_t line; /* 0: the file is one value */
	enum reading_kind kind;
	bool has_header;
	size_t cap_step, cap_entry, cap_request, cap_named, cap_started;
	struct intern_table id; /* names of requests */
	int32_t *named;		/* [by number in id]: the request, -1: no line yet */
	size_t n_named;
	struct started *started; /* [n_started] */
	size_t n_started;
	size_t n_warmup;   /* records of aiperf's warm-up, left out */
	bool first_output; /* a record has a time to the first token after reasoning */
};

/* A request with no value known. */
extern const struct engine_request reading_unknown;

/* AR_DATA: "KEY: want WANT". */
enum ar_status reading_bad(const char *key, const char *want, struct ar_err *err);
/* object.key; NULL: absent or null. */
const cJSON *reading_member(const cJSON *object, const char *key);
/* Set *ns to a time in units of unit ns.  False: not a number from 0 to READING_LAST_S. */
bool reading_time(const cJSON *v, double unit, int64_t *ns);
/* Set *n to an integer from min to 2^31 - 1. */
bool reading_count(const cJSON *v, int64_t min, uint32_t *n);
/* Set *array to object.key, an array; NULL: there is none. */
enum ar_status reading_array(const cJSON *object, const char *key, const cJSON **array,
			     struct ar_err *err);
enum ar_status reading_request(struct reading *r, const struct engine_request *q,
			       struct ar_err *err);

/* engine_outcomes.c: a result of vllm bench serve; a record of aiperf, and after the last one the
 * requests of all. */
enum ar_status reading_bench(struct reading *r, const cJSON *object, struct ar_err *err);
enum ar_status reading_aiperf(struct reading *r, const cJSON *object, struct ar_err *err);
enum ar_status reading_aiperf_end(struct reading *r, struct ar_err *err);

#endif
