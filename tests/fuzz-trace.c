/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a trace.  The reader must succeed or fail cleanly.  An accepted trace
 * must be the same after a round trip through the canonical form. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fuzz.h"
#include "traces/trace.h"

const char fuzz_corpus[] = "trace";

static char *canonical(const struct trace *t, size_t *n)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, n);

	must(f && !trace_write(t, f, NULL), "a trace cannot be written");
	fclose(f);
	return text;
}

static void round_trip(const struct trace *t)
{
	const struct trace_args whole = { 0 };
	char *text, *again_text, path[HOLD_PATH];
	struct trace *again;
	struct ar_err err;
	size_t n, m;
	int fd;

	text = canonical(t, &n);
	fd = hold(text, n, path);
	must(!trace_read(&again, path, &whole, &err), err.msg);
	again_text = canonical(again, &m);
	must(n == m && !memcmp(text, again_text, n), "the canonical form is not stable");
	free(text);
	free(again_text);
	trace_free(again);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char mooncake[] = "mooncake",
		    columns[] = "arrival=timestamp,prompt=input_length,output=output_length";
	static const struct trace_args args[] = {
		{ .time_scale = 1 },
		{ .from_ns = 1000000,
		  .to_ns = 3600000000000,
		  .skip = 1,
		  .requests = 3,
		  .max_prompt = 600,
		  .max_output = 5,
		  .time_scale = 0.37 },
		{ .in.restart = RESTART_APPEND, .in.period_ns = 5000000000 },
		{ .in.restart = RESTART_SORT, .in.hash_tok = 8 },
		{ .in.context = CONTEXT_CUMULATIVE },
		{ .in.format = mooncake, .skip = 1, .max_prompt = 600 },
		{ .in.image_tok = 1 << 20 },
		{ .in.warm_prefix = 1 },
		{ .in.columns = columns, .in.time_unit = UNIT_US },
		{ .spread = 1,
		  .step_ns = 1000,
		  .keep = 0.8,
		  .prompt_scale = 0.6,
		  .output_scale = 1.5,
		  .repeat = 2,
		  .period_ns = INT64_MAX / 4,
		  .shift_ns = 5 },
	};
	char path[HOLD_PATH];
	int fd = hold(data, n, path);

	log_level = LOG_ERROR;
	for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
		struct ar_err err = { 0 };
		struct trace *t;

		if (trace_read(&t, path, &args[i], &err))
			told(&err);
		else
			round_trip(t);
		trace_free(t);
	}
	close(fd);
	return 0;
}
