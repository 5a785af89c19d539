/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts and answers in token ids: their reader, and the trace that they are. */
#include "config.h"
#include "traces/prompts.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/trace.h"

static char path[] = "/tmp/t-prompts-XXXXXX";

static void write_text(const char *text)
{
	file_write(path, text, strlen(text));
}

static const char two[] =
	"{\"task\": \"vt\", \"length\": 4096, \"prompt\": [0, 7, 2147483647], \"answer\": [5, 6], "
	"\"ok\": true, \"depth\": 0.5}\n"
	"\n"
	"{\"prompt\": [3], \"answer\": [[1, 2, 3], [4]], \"ok\": false}\n"
	"[9, 8]\n"
	"{\"prompt\": [9, 8], \"ok\": null}\n";

static void test_reader(void)
{
	struct ar_err err = { 0 };
	struct prompts p;

	write_text(two);
	if (!is_int(prompts_read(&p, path, &err), AR_OK, "a file of four prompts"))
		bail_out("%s", err.msg);
	is_int(p.n, 4, "... has four");
	ok(p.v[0].n_prompt == 3 && p.v[0].prompt[1] == 7 && p.v[0].prompt[2] == INT32_MAX &&
		   p.v[0].n_answer == 2 && p.v[0].answer[1] == 6,
	   "ids of prompt and answer");
	is_str(p.v[0].task, "vt", "the task");
	ok(p.v[0].length == 4096 && p.v[0].expected == 1, "its length, and that it was answered");
	ok(p.v[1].n_answer == 3 && p.v[1].answer[2] == 3, "of several answers the first counts");
	ok(!p.v[1].task && p.v[1].length == 4 && p.v[1].expected == 0,
	   "without a length it is that of both");
	ok(!p.v[3].answer && !p.v[3].n_answer && p.v[3].expected == -1, "an answer may lack");
	ok(p.v[2].n_prompt == 2 && p.v[2].prompt[1] == 8 && !p.v[2].answer && p.v[2].length == 2,
	   "a line may be the prompt alone");
	ok(prompts_at(&p, 1) == &p.v[0] && prompts_at(&p, 3) == &p.v[1] &&
		   prompts_at(&p, 4) == &p.v[2],
	   "prompts are found by line");
	ok(!prompts_at(&p, 0) && !prompts_at(&p, 2) && !prompts_at(&p, 6),
	   "... where there is one");
	prompts_release(&p);
	prompts_release(&p);
}

static void test_refusals(void)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "", ": the file has no prompts" },
		{ "\n \n", ": the file has no prompts" },
		{ "7\n", ":1: want a JSON list of token ids" },
		{ "{\"prompt\": [1]\n", ":1: want a JSON list of token ids" },
		{ "[1, -2]\n", ":1: token 1 of \"prompt\" is no id" },
		{ "[]\n", ":1: \"prompt\" is empty" },
		{ "{\"answer\": [1]}\n", ":1: the record lacks \"prompt\"" },
		{ "{\"prompt\": \"text\"}\n", ":1: \"prompt\" is no list of token ids" },
		{ "{\"prompt\": []}\n", ":1: \"prompt\" is empty; want a token at least" },
		{ "{\"prompt\": [1]}\n{\"prompt\": [1, 2.5]}\n",
		  ":2: token 1 of \"prompt\" is no id from 0 to 2147483647" },
		{ "{\"prompt\": [-1]}\n", ":1: token 0 of \"prompt\" is no id" },
		{ "{\"prompt\": [2147483648]}\n", ":1: token 0 of \"prompt\" is no id" },
		{ "{\"prompt\": [\"1\"]}\n", ":1: token 0 of \"prompt\" is no id" },
		{ "{\"prompt\": [1], \"answer\": 7}\n", ":1: \"answer\" is no list" },
		{ "{\"prompt\": [1], \"answer\": []}\n", ":1: \"answer\" is empty" },
		{ "{\"prompt\": [1], \"answer\": [[]]}\n", ":1: \"answer\" is empty" },
		{ "{\"prompt\": [1], \"answer\": [[1], 2], \"ok\": 3}\n", ":1: \"ok\" is neither" },
		{ "{\"prompt\": [1], \"task\": 3}\n", ":1: \"task\" is no text" },
		{ "{\"prompt\": [1], \"length\": -3}\n", ":1: \"length\" is no number" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct ar_err err = { 0 };
		struct prompts p;

		write_text(bad[i].text);
		ok(prompts_read(&p, path, &err) == AR_DATA && strstr(err.msg, bad[i].why) && !p.n &&
			   !p.v,
		   "refused: %s", err.msg);
	}
}

static void test_trace(void)
{
	static const struct trace_args all = { 0 };
	struct ar_err err = { 0 };
	struct trace *t = NULL;

	write_text("{\"prompt\": [9], \"answer\": [1]}\n{\"prompt\": [9, 8]}\n");
	ok(trace_read(&t, path, &all, &err) == AR_DATA &&
		   strstr(err.msg, ":2: the record lacks \"answer\""),
	   "a trace needs answers: %s", err.msg);
	write_text("{\"prompt\": [1, 2, 3], \"answer\": [1], \"task\": \"a\"}\n\n"
		   "{\"prompt\": [4], \"answer\": [[2, 2], [3]], \"task\": \"b\", \"seed\": 4}\n"
		   "{\"prompt\": [4, 4], \"answer\": [7]}\n");
	if (!is_int(trace_read(&t, path, &all, &err), AR_OK, "prompts are a trace"))
		bail_out("%s", err.msg);
	ok(t->n == 3 && !strcmp(t->format, "prompts"), "... of a format of their own");
	ok(t->req[1].prompt_tok == 1 && t->req[1].output_tok == 2 && !t->req[1].arrival_ns &&
		   t->req[1].line == 3,
	   "... with their lengths, at time 0");
	ok(t->n_type == 2 && !strcmp(t->type[t->req[0].type - 1], "a") &&
		   !strcmp(t->type[t->req[1].type - 1], "b") && !t->req[2].type,
	   "... and their tasks as types");
	trace_free(t);
	write_text("{\"prompt\": [1], \"answer\": [true]}\n");
	ok(trace_read(&t, path, &all, &err) == AR_DATA &&
		   strstr(err.msg, ":1: token 0 of \"answer\" is no id"),
	   "bad ids are refused by line: %s", err.msg);
	write_text("{\"prompt\": \"text\", \"answer\": \"text\"}\n");
	ok(trace_read(&t, path, &all, &err) == AR_DATA && strstr(err.msg, "texts"),
	   "texts are none: %s", err.msg);
}

static void test_memory(void)
{
	int n = 0;

	write_text(two);
	for (;; n++) {
		struct ar_err err = { 0 };
		struct prompts p;
		enum ar_status st;

		fault_arm(n);
		st = prompts_read(&p, path, &err);
		prompts_release(&p);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM)
			bail_out("allocation %d: status %d, %s", n, st, err.msg);
	}
	ok(n > 10, "each of %d allocations fails cleanly", n);
}

int main(void)
{
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0 || close(fd))
		bail_out("no file");
	test_reader();
	test_refusals();
	test_trace();
	test_memory();
	unlink(path);
	return done_testing();
}
