/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: formats, malformed input, transformations, the canonical form, summary figures. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/rng.h"
#include "tests/trace_text.h"
#include "traces/algebra/merge.h"
#include "traces/algebra/summary.h"
#include "traces/importers/import.h"

/* ---- formats ---- */

static void same_requests(const struct trace *t, const struct request *want, size_t n,
			  const char *what)
{
	size_t good = 0;

	for (size_t i = 0; t && i < n && i < t->n; i++)
		good += t->req[i].arrival_ns == want[i].arrival_ns &&
			t->req[i].prompt_tok == want[i].prompt_tok &&
			t->req[i].output_tok == want[i].output_tok &&
			t->req[i].line == want[i].line;
	ok(t && t->n == n && good == n, "%s", what);
}

static void test_azure(void)
{
	static const struct request want[] = {
		{ .arrival_ns = 0, .prompt_tok = 374, .output_tok = 44, .line = 2 },
		{ .arrival_ns = 4314579000, .prompt_tok = 396, .output_tok = 109, .line = 3 },
	};
	struct trace *t = read_text("\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
				    "2023-11-16 18:15:46.6805900,374,44\r\n"
				    "2023-11-16 18:15:50.9951690,396,109");

	same_requests(t, want, 2, "azure 2023: byte order mark, CRLF, no last line end");
	ok(t && !strcmp(t->format, "azure") && t->has_epoch && t->epoch_ns == 1700158546680590000 &&
		   !t->block_tok && t->req[0].session == -1,
	   "azure: found by content, with its absolute time");
	trace_free(t);
	t = read_text("timestamp,ContextTokens,Extra,GeneratedTokens\n\n"
		      "2023-11-16T20:15:46.68059+02:00,374,x,\" 44\"\n"
		      "2023-11-16 18:15:50.995169+00:00, 396 ,y,109.0\n\n");
	ok(t && t->n == 2 && t->req[1].arrival_ns == 4314579000 && t->req[1].prompt_tok == 396 &&
		   t->req[1].output_tok == 109 && t->req[0].output_tok == 44 &&
		   t->epoch_ns == 1700158546680590000,
	   "azure 2024: zones, other columns, case, blanks, quotes, blank lines, a zero fraction");
	trace_free(t);
	t = read_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-29 23:59:59.5Z,1,3\n"
		      "2024-03-01 00:00:00+0000,2,3\n2024-03-01 00:00:00.5+00,2,3\n2024-02-29 "
		      "19:00:01.25-0500,5,6\n");
	ok(t && t->n == 4 && t->req[1].arrival_ns == 500000000 &&
		   t->req[3].arrival_ns == 1750000000,
	   "azure: no fraction, a leap day, every spelling of a zone");
	trace_free(t);
}

static void test_vidur(void)
{
	static const struct request want[] = {
		{ .arrival_ns = 0, .prompt_tok = 374, .output_tok = 44, .line = 2 },
		{ .arrival_ns = 4314579000, .prompt_tok = 396, .output_tok = 109, .line = 3 },
		{ .arrival_ns = 5892655000, .prompt_tok = 91, .output_tok = 16, .line = 4 },
	};
	struct trace *t = read_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n"
				    "4.314579,396,109\n5.8926549999999995,91,16\n");

	same_requests(t, want, 3, "vidur: decimals round to the nearest nanosecond");
	ok(t && !strcmp(t->format, "vidur") && !t->has_epoch, "vidur: found by content");
	trace_free(t);
}

static void test_order(void)
{
	struct trace *t = read_text("arrived_at,num_prefill_tokens,num_decode_tokens\n"
				    "10,1,1\n10.5,2,1\n10,3,1\n12,0,1\n12,4,0\n10.5,5,1\n");

	ok(t && t->n == 4 && t->req[0].prompt_tok == 1 && t->req[1].prompt_tok == 3 &&
		   t->req[2].prompt_tok == 2 && t->req[3].prompt_tok == 5 &&
		   t->req[3].arrival_ns == 500000000,
	   "jitter is sorted stably, requests that were not served are dropped");
	if (t) {
		char *text = cJSON_PrintUnformatted(t->transforms);

		is_str(text, "[\"drop-no-prompt=1\",\"drop-no-output=1\",\"sort\"]",
		       "and the trace says so");
		cJSON_free(text);
	}
	trace_free(t);
}

static size_t n_blocks(const struct trace *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += t->req[i].n_block;
	return n;
}

/* Block k of the blocks of all requests. */
static uint64_t block(const struct trace *t, size_t k)
{
	size_t i = 0;

	for (; k >= t->req[i].n_block; i++)
		k -= t->req[i].n_block;
	return trace_block(t, &t->req[i], (uint32_t)k);
}

/* Whether n blocks from block k on have these ids. */
static bool has_blocks(const struct trace *t, size_t k, const uint64_t *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (k + i >= n_blocks(t) || block(t, k + i) != want[i])
			return false;
	return true;
}

static void test_mooncake(void)
{
	static const uint64_t want[] = { 0, 1, 2, 3, 4, 0, 1, 2, 3, 5, 6, 0, 1, 2, 3, 5, 7, 8 };
	char mooncake[] = "mooncake";
	struct trace_args a = { .in.format = mooncake }, ms = { .in.time_unit = UNIT_MS };
	struct ar_err err;
	struct trace *t = read_text(dialogue);

	ok(t && t->n == 3 && n_blocks(t) == 18 && t->block_tok == 512 && t->req[2].n_block == 7 &&
		   has_blocks(t, 0, want, 18),
	   "mooncake: blocks are numbered by first appearance");
	ok(t && t->req[1].arrival_ns == 545999000000, "mooncake: milliseconds");
	trace_free(t);
	t = read_with(
		"{\"timestamp\":0,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[7,8]}\n"
		"{\"timestamp\":1.5,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[8,7]}\n"
		"{\"timestamp\":2e0,\"input_length\":1000,\"output_length\":1,\"hash_ids\":[7,8]}\n"
		"{\"timestamp\":3,\"input_length\":600,\"output_length\":1,\"hash_ids\":[7,9,10]}\n"
		"{\"timestamp\":4,\"input_length\":600,\"output_length\":1,\"hash_ids\":[7,9]}\n"
		"{\"timestamp\":5,\"input_length\":600,\"output_length\":1}\n",
		&ms, &err);
	ok(t && t->n == 6 && t->req[1].arrival_ns == 1500000 && t->req[2].arrival_ns == 2000000,
	   "decimal times");
	ok(t && block(t, 0) == 0 && block(t, 1) == 1 && block(t, 2) == 2 && block(t, 3) == 3,
	   "the same id in another place is another block");
	ok(t && block(t, 4) == 0 && block(t, 5) == 4, "a partial last block is not the full one");
	ok(t && t->req[3].n_block == 2 && block(t, 6) == 0 && block(t, 7) == block(t, 9),
	   "one id too many is cut off");
	ok(t && !t->req[5].n_block && t->req[5].session == -1,
	   "without hash_ids nothing is shared");
	trace_free(t);
	t = read_text(
		"{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[\"a\"]}\n"
		"{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":["
		"18446744073709551615]}\n"
		"{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":["
		"18446744073709551614]}\n"
		"{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[0]}\n"
		"{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[\"a\"]}"
		"\n");
	ok(t && n_blocks(t) == 5 && block(t, 1) == 1 && block(t, 2) == 2 && block(t, 3) == 3 &&
		   block(t, 4) == 0,
	   "ids may be strings or any 64-bit integer");
	trace_free(t);
	t = read_with("{\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"a\":\"}\\\"]\","
		      "\"b\":{\"c\":[1,{}]}}\n",
		      &a, &err);
	ok(t && t->n == 1 && !t->block_tok,
	   "other keys are skipped; no blocks at all, no block size");
	trace_free(t);
}

static const char canon[] = "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":16,\"epoch\":"
			    "\"2023-11-16T18:15:46.680590000Z\","
			    "\"context\":\"cumulative\",\"requests\":3,\"sources\":[{\"name\":\"a "
			    "\\\"b\\\"\",\"sha256\":\"00\","
			    "\"format\":\"x\"}],\"transforms\":[\"sort\"]}\n"
			    "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":20,\"output_tokens\":3,"
			    "\"session\":\"m\\n0\",\"turn\":0,"
			    "\"blocks\":[7,9]}\n"
			    "{\"id\":1,\"arrival_ns\":9007199254740993,\"prompt_tokens\":33,"
			    "\"output_tokens\":3,\"session\":\"m\\n0\","
			    "\"turn\":1,\"think_ns\":0,\"blocks\":[7,18446744073709551615,2],"
			    "\"label\":\"GPT-4\",\"images\":3}\n"
			    "{\"id\":2,\"arrival_ns\":9007199254740993,\"prompt_tokens\":"
			    "2147483647,\"output_tokens\":1,\"label\":\"GPT-4\"}\n";

static void test_canonical(void)
{
	struct trace *t = read_text(canon);
	char *text;

	ok(t && t->n == 3 && t->n_session == 1 && t->req[1].session == 0 && t->req[1].turn == 1 &&
		   t->req[1].arrival_ns == 9007199254740993 && block(t, 3) == UINT64_MAX &&
		   t->req[2].session == -1,
	   "canonical: every digit counts");
	ok(t && t->n_type == 1 && !t->req[0].type && t->req[1].type == 1 && t->req[2].type == 1 &&
		   t->req[1].images == 3 && t->req[0].think_ns == -1 && !t->req[1].think_ns,
	   "canonical: label, images, think time");
	if (t) {
		text = canonical(t);
		is_str(text, canon, "canonical: written as it was read");
		free(text);
	}
	trace_free(t);
	t = read_text("{\"format\":\"reqtrace\",\"version\":1,\"block_size\":512,\"requests\":2,"
		      "\"x_y\":[1]}\n"
		      "{\"id\":0,\"arrival_ns\":5,\"prompt_tokens\":20,\"output_tokens\":3,"
		      "\"session\":\"s\",\"turn\":0,"
		      "\"completion_blocks\":[5],\"x_z\":0}\n"
		      "{\"id\":1,\"arrival_ns\":7,\"prompt_tokens\":20,\"output_tokens\":3,"
		      "\"session\":\"s\",\"turn\":1,"
		      "\"parent\":0,\"flags\":[]}\n");
	ok(t && t->n == 2 && t->req[1].arrival_ns == 7 && t->block_tok == 512,
	   "canonical: keys that are not used, and keys of one's own");
	if (t) {
		text = canonical(t);
		ok(strstr(text, "\"epoch\":null") &&
			   strstr(text, "\"format\":\"canonical\"}],\"transforms\":[]}"),
		   "without sources, the file is the source");
		free(text);
	}
	trace_free(t);
}

/* ---- transformations ---- */

static const char ten[] = VI
	"1,10,1\n2,20,1\n3,30,1\n4,40,1\n5,50,1\n6,60,1\n7,70,1\n8,80,1\n9,90,1\n10,100,9\n";

static void test_cuts(void)
{
	struct trace_args a = { .from_ns = 2000000000,
				.to_ns = 9000000000,
				.skip = 1,
				.requests = 4,
				.time_scale = 0.5,
				.max_prompt = 45 };
	struct ar_err err;
	struct trace *t = read_with(ten, &a, &err);
	char *text;

	ok(t && t->n == 4 && t->req[0].prompt_tok == 40 && t->req[1].prompt_tok == 45 &&
		   t->req[3].line == 8,
	   "window, then skip, then count, then clip");
	ok(t && t->req[0].arrival_ns == 0 && t->req[3].arrival_ns == 1500000000,
	   "arrivals count from the first request kept, then scale");
	if (t) {
		text = cJSON_PrintUnformatted(t->transforms);
		is_str(text,
		       "[\"from=2000000000ns\",\"to=9000000000ns\",\"skip-requests=1\",\"requests="
		       "4\","
		       "\"max-prompt-tokens=45\",\"time-scale=0.5\"]",
		       "the trace lists them in order");
		cJSON_free(text);
	}
	trace_free(t);
	a = (struct trace_args){ .to_ns = 1000000000, .max_output = 1 };
	t = read_with(ten, &a, &err);
	ok(t && t->n == 1, "the window is half open");
	trace_free(t);
	a = (struct trace_args){ .skip = 9, .max_output = 2 };
	t = read_with(ten, &a, &err);
	ok(t && t->n == 1 && t->req[0].output_tok == 2, "outputs are clipped");
	trace_free(t);
	a = (struct trace_args){ .skip = 10 };
	ok(!read_with(ten, &a, &err) && err.status == AR_DATA &&
		   strstr(err.msg, "none of its 10 requests is left"),
	   "an empty result is an error");
	a = (struct trace_args){ .from_ns = 5, .to_ns = 5 };
	ok(!read_with(ten, &a, &err) && err.status == AR_USAGE, "an empty window is wrong usage");
	a = (struct trace_args){ .time_scale = 1e6 };
	ok(!read_with(VI "0,1,1\n9e9,1,1\n", &a, &err) && err.status == AR_USAGE &&
		   strstr(err.msg, "beyond 2^63 ns"),
	   "a scale that overflows is wrong usage");
}

static void test_cut_blocks(void)
{
	struct trace_args a = { .skip = 1, .max_prompt = 2100 };
	struct ar_err err;
	struct trace *t = read_with(dialogue, &a, &err), *again;
	static const uint64_t want[] = { 0, 1, 2, 3, 5 };
	char *text, *text2;

	ok(t && t->n == 2 && t->req[0].n_block == 5 && t->req[1].n_block == 5 &&
		   has_blocks(t, 5, want, 5),
	   "cut prompts keep the ids of their blocks");
	if (!t)
		return;
	text = canonical(t);
	again = read_text(text);
	text2 = again ? canonical(again) : NULL;
	is_str(text2 ? text2 : "", text, "and are read back");
	free(text);
	free(text2);
	trace_free(t);
	trace_free(again);
}

/* After sorting, the blocks of the requests stand in another order than the requests. */
static void test_cut_sorted(void)
{
	struct trace_args a = { .requests = 2 };
	struct ar_err err;
	struct trace *t = read_with(
		"{\"timestamp\":9,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1]}\n"
		"{\"timestamp\":3,\"input_length\":513,\"output_length\":1,\"hash_ids\":[1,2]}\n"
		"{\"timestamp\":2,\"input_length\":512,\"output_length\":1,\"hash_ids\":[3]}\n"
		"{\"timestamp\":1,\"input_length\":9,\"output_length\":1,\"hash_ids\":[4]}\n",
		&a, &err);

	ok(t && t->n == 2 && n_blocks(t) == 2 && t->req[0].line == 4 && t->req[1].line == 3 &&
		   block(t, 0) == 3 && block(t, 1) == 2 && t->n_run == 2,
	   "sorted requests keep their blocks");
	trace_free(t);
}

/* ---- sessions that start others ---- */

#define TREE_HEADER "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":6}\n"
#define TREE_LINE(id, ms, session, turn, more) \
	"{\"id\":" #id ",\"arrival_ns\":" #ms "000000,\"prompt_tokens\":9,\"output_tokens\":3," \
	"\"session\":\"" session "\",\"turn\":" #turn more "}\n"

static const char tree[] = TREE_HEADER TREE_LINE(0, 1, "a", 0, "")
	TREE_LINE(1, 2, "a/b", 0, ",\"think_ns\":5,\"x_after\":0")
		TREE_LINE(2, 3, "a/b", 1, ",\"think_ns\":1")
			TREE_LINE(3, 4, "a", 1, ",\"think_ns\":7,\"x_join\":[2],\"x_join_ns\":9")
				TREE_LINE(4, 5, "a", 2, ",\"think_ns\":3")
					TREE_LINE(5, 6, "a", 3, ",\"think_ns\":8,\"x_after\":3");

static void is_link(const struct trace *t, int s, int parent, const char *what)
{
	const struct session_link *l = &t->link[s];

	ok(l->parent == parent && !l->after && l->join == 1 && l->join_ns == 9, "%s", what);
}

/* What is left of the tree. */
static size_t left_of(double keep, int64_t seed)
{
	struct trace_args a = { .keep = keep, .seed = seed };
	struct ar_err err;
	struct trace *t = read_with(tree, &a, &err);
	size_t n = t ? t->n : 0;

	trace_free(t);
	return n;
}

static void test_links(void)
{
	struct trace_args twice = { .repeat = 2, .period_ns = 1000000000 };
	struct ar_err err;
	struct trace *t = read_text(tree), *more = read_text(tree);
	char *text = canonical(t);
	int bad = 0;

	is_str(strchr(text, '\n'), strchr(tree, '\n'), "sessions that start others are written");
	free(text);
	ok(t->link && t->link[0].parent < 0 && t->req[5].back == 2 && !t->req[4].back,
	   "a turn after an earlier one");
	is_link(t, 1, 0, "a session with a parent");
	if (trace_merge(t, more, ALIGN_START, NULL))
		bail_out("no memory");
	is_link(t, 1, 0, "... the same when merged");
	is_link(t, 3, 2, "... as is that of the other trace");
	trace_free(t);
	trace_free(more);
	t = read_with(tree, &twice, &err);
	is_link(t, 1, 0, "... the same when repeated");
	is_link(t, 3, 2, "... as is the repetition");
	trace_free(t);
	twice = (struct trace_args){ .time_scale = 3 };
	t = read_with(tree, &twice, &err);
	ok(t->link[1].join_ns == 27 && t->req[1].think_ns == 15, "times have one scale");
	trace_free(t);
	for (int seed = 0; seed < 20; seed++)
		bad += left_of(0.5, seed) % 6 != 0;
	ok(!bad, "a session stays with those that it starts");
}

/* ---- containers ---- */

static size_t frame(char *out, size_t cap, const char *text, size_t n)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t k;

	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	k = ZSTD_compress2(c, out, cap, text, n);
	ZSTD_freeCCtx(c);
	return k;
}

static void test_zstd(void)
{
	static const char skippable[] = "\x5a\x2a\x4d\x18\x03\x00\x00\x00"
					"abc";
	char buf[4096], bad[4096];
	size_t n = 0, half = strlen(dialogue) / 2, failed = 0, wrong = 0;
	struct ar_err err;
	struct trace *t;

	memcpy(buf, skippable, 11);
	n = 11 + frame(buf + 11, sizeof buf - 11, dialogue, half);
	memcpy(buf + n, skippable, 11);
	n += 11;
	n += frame(buf + n, sizeof buf - n, dialogue + half, strlen(dialogue) - half);
	put(buf, n);
	ok(!trace_read(&t, path, &whole, &err) && t->n == 3,
	   "frames in a row, skippable ones between");
	trace_free(t);

	n = frame(buf, sizeof buf, dialogue, strlen(dialogue));
	for (size_t k = 0; k < n; k++) {
		put(buf, k);
		failed += trace_read(&t, path, &whole, &err) == AR_DATA && !t;
	}
	is_int((long long)failed, (long long)n, "a frame cut short anywhere is an error");
	is_str(err.msg + strlen(path),
	       ":4: the zstd data end inside a frame; the file is truncated",
	       "at the line reached");
	for (size_t k = 0; k < n; k++) {
		memcpy(bad, buf, n);
		bad[k] ^= 4;
		put(bad, n);
		if (!trace_read(&t, path, &whole, &err))
			wrong += t->n != 3 || t->req[2].prompt_tok != 3082 || n_blocks(t) != 18;
		trace_free(t);
	}
	is_int((long long)wrong, 0, "no flipped bit changes the trace unnoticed");
	buf[n - 1] ^= 1;
	put(buf, n);
	ok(trace_read(&t, path, &whole, &err) == AR_DATA && strstr(err.msg, "damaged zstd data: "),
	   "a wrong checksum is named");
	put("\x28\xb5\x2f\xfd\x00\x90\x09\x00\x00x", 10); /* a window of 2^28 bytes */
	ok(trace_read(&t, path, &whole, &err) == AR_DATA && strstr(err.msg, "too much memory"),
	   "a window of more than 128 MiB is refused");
}

/* A member of gzip with text[0..n); returns its bytes. */
static size_t gzip(void *out, size_t cap, const char *text, size_t n)
{
	z_stream z = { .next_out = out, .avail_out = (uInt)cap };

	z.next_in = (unsigned char *)(uintptr_t)text;
	z.avail_in = (uInt)n;
	if (deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) ||
	    deflate(&z, Z_FINISH) != Z_STREAM_END)
		bail_out("no gzip");
	deflateEnd(&z);
	return cap - z.avail_out;
}

static void test_gzip(void)
{
	char buf[4096], bad[4096];
	size_t half = strlen(dialogue) / 2, failed = 0, wrong = 0;
	size_t n = gzip(buf, sizeof buf, dialogue, half);
	struct ar_err err;
	struct trace *t;

	n += gzip(buf + n, sizeof buf - n, dialogue + half, strlen(dialogue) - half);
	put(buf, n);
	ok(!trace_read(&t, path, &whole, &err) && t->n == 3, "members of gzip in a row");
	trace_free(t);
	n = gzip(buf, sizeof buf, dialogue, strlen(dialogue));
	for (size_t k = 0; k < n; k++) {
		put(buf, k);
		failed += trace_read(&t, path, &whole, &err) == AR_DATA && !t;
	}
	is_int((long long)failed, (long long)n, "a member cut short anywhere is an error");
	is_str(err.msg + strlen(path),
	       ":4: the gzip data end inside a member; the file is truncated",
	       "at the line reached");
	for (size_t k = 0; k < n; k++) {
		memcpy(bad, buf, n);
		bad[k] ^= 4;
		put(bad, n);
		if (!trace_read(&t, path, &whole, &err))
			wrong += t->n != 3 || t->req[2].prompt_tok != 3082 || n_blocks(t) != 18;
		trace_free(t);
	}
	is_int((long long)wrong, 0, "no flipped bit changes the trace unnoticed");
	put(buf, n);
	survive(buf, n, &whole, "gzip");
	buf[n - 5] ^= 1;
	put(buf, n);
	ok(trace_read(&t, path, &whole, &err) == AR_DATA &&
		   strstr(err.msg, "damaged gzip data: incorrect data check"),
	   "a wrong checksum of gzip is named");
}

/* A prompt of 20 M tokens on a line of a quarter of a megabyte, and a line that never ends. */
static void test_long_lines(void)
{
	size_t n = 70u << 20, cap = ZSTD_compressBound(n), k, at;
	char *line = malloc(n), *out = malloc(cap);
	struct ar_err err;
	struct trace *t;

	at = (size_t)sprintf(
		line,
		"{\"timestamp\":0,\"input_length\":20480000,\"output_length\":1,\"hash_ids\":[0");
	for (int i = 1; i < 40000; i++)
		at += (size_t)sprintf(line + at, ",%d", i);
	strcpy(line + at, "]}");
	t = read_text(line);
	ok(t && t->req[0].n_block == 40000 && block(t, 39999) == 39999, "lines may be long");
	trace_free(t);
	memset(line, 'a', n);
	k = ZSTD_compress(out, cap, line, n, 1);
	put(out, k);
	ok(trace_read(&t, path, &whole, &err) == AR_DATA &&
		   !strcmp(err.msg + strlen(path), ":1: line longer than 64 MiB"),
	   "but not endless");
	free(line);
	free(out);
}

/* ---- properties ---- */

enum { N_RANDOM = 60, MAX_IDS = 8 };

struct prompt {
	uint32_t len, n;
	unsigned id[MAX_IDS];
};

static void random_prompt(struct prompt *p, struct rng *rng)
{
	p->len = 1 + (uint32_t)rng_below(rng, 512 * MAX_IDS);
	if (!rng_below(rng, 3))
		p->len = 512 * (1 + (uint32_t)rng_below(rng, MAX_IDS));
	p->n = (p->len + 511) / 512;
	for (uint32_t i = 0; i < p->n; i++)
		p->id[i] = (unsigned)rng_below(rng, 3);
}

/* Number of leading blocks that two prompts share.  A partial block needs equal tokens too. */
static uint32_t shared(const struct prompt *a, const struct prompt *b)
{
	uint32_t k = 0;

	while (k < a->n && k < b->n && a->id[k] == b->id[k]) {
		uint32_t in_a = k + 1 < a->n ? 512 : a->len - 512 * k;
		uint32_t in_b = k + 1 < b->n ? 512 : b->len - 512 * k;

		if (in_a != in_b)
			break;
		k++;
	}
	return k;
}

static void test_random(uint64_t seed)
{
	struct rng rng = { seed };
	struct prompt p[N_RANDOM];
	uint64_t want_blocks = 0, want_tok = 0;
	size_t bad = 0;
	char *text = NULL, *again_text;
	struct trace *t, *again;
	struct summary s;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	for (int i = 0; i < N_RANDOM; i++) {
		uint32_t best = 0;

		random_prompt(&p[i], &rng);
		fprintf(f,
			"{\"timestamp\":%d,\"input_length\":%u,\"output_length\":%d,\"hash_ids\":[",
			i / 3, p[i].len, i + 1);
		for (uint32_t k = 0; k < p[i].n; k++)
			fprintf(f, "%s%u", k ? ", " : "", p[i].id[k]);
		fputs("]}\n", f);
		for (int j = 0; j < i; j++)
			if (shared(&p[i], &p[j]) > best)
				best = shared(&p[i], &p[j]);
		want_blocks += best;
		want_tok += 512 * best < p[i].len ? 512 * best : p[i].len;
	}
	fclose(f);
	t = read_text(text);
	for (int i = 0; t && i < N_RANDOM; i++)
		for (int j = 0; j < i; j++) {
			const struct request *a = &t->req[i], *b = &t->req[j];
			uint32_t k = 0;

			while (k < p[i].n && k < p[j].n &&
			       trace_block(t, a, k) == trace_block(t, b, k))
				k++;
			bad += k != shared(&p[i], &p[j]);
		}
	ok(t && !bad, "seed %d: prompts share exactly their common leading blocks", (int)seed);
	ok(t && !trace_summarize(&s, t, NULL) && s.blocks_reused == want_blocks &&
		   s.tok_reused == want_tok,
	   "seed %d: ideal reuse is that of the longest match", (int)seed);
	free(text);
	text = t ? canonical(t) : NULL;
	again = text ? read_text(text) : NULL;
	again_text = again ? canonical(again) : NULL;
	is_str(again_text ? again_text : "", text ? text : "-",
	       "seed %d: canonical to canonical is the identity", (int)seed);
	free(text);
	free(again_text);
	trace_free(t);
	trace_free(again);
}

static void test_many_names(void)
{
	enum { N = 1000 };
	char *text = NULL, *again;
	struct trace *t;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	fprintf(f,
		"{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"epoch\":null,"
		"\"context\":"
		"\"cumulative\",\"requests\":%d,\"sources\":[],\"transforms\":[]}\n",
		2 * N);
	for (int i = 0; i < 2 * N; i++)
		fprintf(f,
			"{\"id\":%d,\"arrival_ns\":%d,\"prompt_tokens\":1,\"output_tokens\":1,"
			"\"session\":\"s%d\",\"turn\":%d}\n",
			i, i, i % N, i / N);
	fclose(f);
	t = read_text(text);
	ok(t && t->n_session == N && t->req[N + 7].session == 7 && !strcmp(t->session[7], "s7"),
	   "a thousand sessions are told apart");
	again = t ? canonical(t) : NULL;
	is_str(again ? again : "", text, "and written again");
	free(again);
	free(text);
	trace_free(t);
}

static void test_dates(void)
{
	struct rng rng = { 5 };
	int bad = 0;

	for (int i = 0; i < 2000; i++) {
		int64_t ns = (int64_t)rng_below(&rng, (uint64_t)DATE_MAX_NS), back = -1;
		char text[DATE_CHARS];
		enum date_zone zone;

		date_format(text, ns);
		bad += !date_parse((struct span){ text, strlen(text) }, &back, &zone) ||
		       back != ns || zone != DATE_ZONED;
	}
	is_int(bad, 0, "dates that are written are read back");
}

static void test_bad_dates(void)
{
	static const char *const texts[] = {
		"",
		"2023",
		"2023-11-16 18:15",
		"2023-13-01 00:00:00",
		"2023-00-01 00:00:00",
		"2023-01-00 00:00:00",
		"2023-01-32 00:00:00",
		"2023-01-01_00:00:00",
		"2023-01-01 24:00:00",
		"2023-01-01 00:60:00",
		"2023-01-01 00:00:60",
		"2023-01-01 00:00:00.",
		"2023-01-01 00:00:00 Z",
		"2023-01-01 00:00:00Zx",
		"2023-01-01 00:00:00+",
		"2023-01-01 00:00:00+1",
		"2023-01-01 00:00:00+01:",
		"2023-01-01 00:00:00+24",
		"2023-01-01 00:00:00+01:60",
		"2023-01-01 00:00:00+01:000",
		"1969-12-31 23:59:59",
		"2262-04-12 00:00:00",
		"1970-01-01 00:00:00+01",
		"2100-02-29 00:00:00",
		"2023/01/01 00:00:00",
		"2023-01-01 00-00-00",
	};
	int good = 0;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		int64_t ns;
		enum date_zone zone;

		good += date_parse((struct span){ texts[i], strlen(texts[i]) }, &ns, &zone);
	}
	is_int(good, 0, "no malformed date is taken");
}

static void test_summary(void)
{
	struct trace *t = read_text(VI "0,1,5\n0.5,2,5\n0.5,3,5\n2,4,6\n3,10,7\n");
	struct summary s;

	/* gaps 0.5 0 1.5 1: mean 0.75, variance 0.3125; counts 3 0 1: mean 4/3, variance 14/9 */
	ok(t && !trace_summarize(&s, t, NULL) && fabs(s.rate - 5 / 3.0) < 1e-12 && s.distinct == 4,
	   "rate");
	ok(fabs(s.gap_cv - sqrt(0.3125) / 0.75) < 1e-12, "variation of the gaps");
	ok(fabs(s.window[0].dispersion - 14 / 9.0 / (4 / 3.0)) < 1e-12 &&
		   isnan(s.window[1].dispersion),
	   "dispersion leaves out the last window, which is not whole");
	ok(s.prompt.sum == 20 && s.prompt.min == 1 && s.prompt.p50 == 3 && s.prompt.p90 == 10 &&
		   s.prompt.max == 10 && s.output.p50 == 5,
	   "percentiles by nearest rank");
	trace_free(t);
	t = read_text(VI "0,1,5\n");
	ok(t && !trace_summarize(&s, t, NULL) && isnan(s.rate) && isnan(s.gap_cv) &&
		   isnan(s.window[0].dispersion) && s.prompt.p99 == 1,
	   "one request has no rate");
	trace_free(t);
}

/* ---- faults of the machine ---- */

static void test_survival(void)
{
	static const char azure[] = AZ "2023-11-16 18:15:46,1,1\n",
			  strings[] = "{\"timestamp\":0,\"input_length\":17,\"output_length\":1,"
				      "\"hash_ids\":[\"a\"]}\n";
	char zst[1024];
	size_t n = frame(zst, sizeof zst, dialogue, strlen(dialogue));

	survive(canon, strlen(canon), &whole, "canonical");
	survive(dialogue, strlen(dialogue), &whole, "mooncake");
	survive(azure, strlen(azure), &whole, "azure");
	survive(strings, strlen(strings), &whole, "string ids");
	survive(zst, n, &whole, "zstd");
}

static void survive_json(const char *text, const char *what)
{
	cJSON_Hooks hooks = { malloc, free };
	long n = 0, bad = 0;
	struct trace_args a = {
		.requests = 1, .max_prompt = 1, .max_output = 1, .time_scale = 0.5
	};
	struct ar_err err;
	struct trace *t;
	FILE *f = fopen("/dev/null", "w");

	put(text, strlen(text));
	cJSON_InitHooks(&hooks);
	for (long k = 0;; k++, n++) {
		enum ar_status st;
		bool fired;

		fault_arm(k);
		st = trace_read(&t, path, &a, &err);
		if (!st)
			st = trace_write(t, f, &err);
		fired = fault_disarm();
		trace_free(t);
		if (!fired)
			break;
		bad += st != AR_NOMEM;
	}
	cJSON_InitHooks(NULL);
	fclose(f);
	ok(n > 3 && !bad, "%s: each of %ld allocations of the JSON parser fails cleanly", what, n);
}

static void test_made(void)
{
	struct request q = { .arrival_ns = 0, .prompt_tok = 2, .output_tok = 3, .session = -1 };
	char name[] = "made", format[] = "none";
	struct trace t = { .req = &q, .n = 1, .name = name, .format = format, .sha256 = "00" };
	char *text = canonical(&t);

	is_str(text,
	       "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"epoch\":null,"
	       "\"context\":\"cumulative\",\"requests\":1,\"sources\":[{\"name\":\"made\","
	       "\"sha256\":\"00\",\"format\":\"none\"}],\"transforms\":[]}\n"
	       "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":2,\"output_tokens\":3}\n",
	       "a trace that was not read can be written");
	free(text);
}

static void test_full_disk(void)
{
	struct trace *t = read_text(dialogue);
	FILE *f = fopen("/dev/full", "w");
	struct ar_err err;

	ok(f && trace_write(t, f, &err) == AR_IO && strstr(err.msg, "cannot write the trace"),
	   "a full disk is an error");
	fclose(f);
	trace_free(t);
}

static void test_interrupt(void)
{
	struct ar_err err;

	ar_catch_interrupts();
	raise(SIGTERM);
	ok(!read_with(dialogue, &whole, &err) && err.status == AR_INTERRUPTED,
	   "an interrupt ends the import");
}

int main(void)
{
	text_begin();
	plan(0);
	test_azure();
	test_vidur();
	test_order();
	test_mooncake();
	test_canonical();
	test_cuts();
	test_cut_blocks();
	test_cut_sorted();
	test_links();
	test_zstd();
	test_gzip();
	test_long_lines();
	for (uint64_t seed = 1; seed <= 5; seed++)
		test_random(seed);
	test_many_names();
	test_dates();
	test_bad_dates();
	test_summary();
	test_survival();
	survive_json(canon, "canonical");
	survive_json(VI "0,0,1\n0,1,0\n1,5,5\n0.9,6,6\n", "vidur");
	test_made();
	test_full_disk();
	test_interrupt();
	text_end();
	return done_testing();
}
