/* SPDX-License-Identifier: Apache-2.0 */
/* The settings, answers and stored results of 'attnreplay eval', without running a model. */
#include "config.h"
#include "src/eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

enum { VOCAB = 6 };

/* ---- options ---- */

/* Parse a command line of words; *o and c->own are to be released. */
static enum ar_status parse(struct run_options *o, struct run_command *c, struct eval_args *a,
			    const char *words, struct ar_err *err)
{
	static char text[400];
	char *argv[20], *save = NULL;
	int argc = 0;

	*a = (struct eval_args){ 0 };
	*c = (struct run_command){ .own = { .opts = eval_opts, .base = a },
				   .parsed = eval_options_set };
	snprintf(text, sizeof text, "%s", words);
	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	return run_options_parse(o, c, argc, argv, err);
}

static void release(struct run_options *o, struct run_command *c)
{
	run_options_release(o);
	opt_release((struct opt_group[]){ c->own, { 0 } });
}

#define GIVEN "--backend cpu --weights w --tasks t.jsonl"

static void test_methods(void)
{
	static const struct {
		const char *given, *want;
	} lists[] = {
		{ "dense", "dense" },
		{ "compact-fp", "dense,compact-fp" },
		{ "compact-fp:alpha=0.1,xattention,dense,quoka",
		  "dense,compact-fp:alpha=0.1,xattention,quoka" },
		{ "dense+lazyllm,0-:dense", "0-:dense,dense+lazyllm" },
		{ "select=flashprefill,alpha=0.2,window=4/union=none/exec=blocksparse",
		  "dense,select=flashprefill,alpha=0.2,window=4/union=none/exec=blocksparse" },
	};

	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		struct ar_err err = { 0 };
		struct run_options o;
		struct run_command c;
		struct eval_args a;
		char words[300];

		snprintf(words, sizeof words, GIVEN " --method %s", lists[i].given);
		if (parse(&o, &c, &a, words, &err))
			bail_out("%s", err.msg);
		is_str(o.methods, lists[i].want, "dense is the first of %s", lists[i].given);
		ok(!strcmp(o.trace, "t.jsonl") && !strcmp(o.prompts, "t.jsonl"),
		   "... and the tasks are trace and prompts");
		release(&o, &c);
	}
}

static void test_refused(void)
{
	static const struct {
		const char *words, *why;
	} bad[] = {
		{ "--weights w",
		  "no tasks given; name a file of prompts and answers with --tasks" },
		{ "--tasks t", "no weights given; name the folder of a model with --weights" },
		{ GIVEN " --trace t",
		  "trace has no effect: prompts and answers are those of --tasks; leave it out" },
		{ GIVEN " --merge t", "merge has no effect: prompts" },
		{ GIVEN " --prompts t", "prompts has no effect: prompts" },
		{ GIVEN " --temperature 1", "temperature has no effect: prompts" },
		{ GIVEN " --method nosuch", "method 'nosuch': unknown name" },
		{ GIVEN " --resume a.db", "unknown option '--resume'" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct ar_err err = { 0 };
		struct run_options o;
		struct run_command c;
		struct eval_args a;

		ok(parse(&o, &c, &a, bad[i].words, &err) == AR_USAGE && strstr(err.msg, bad[i].why),
		   "%s is refused: %s", bad[i].words, err.msg);
		release(&o, &c);
	}
}

static void test_option_memory(void)
{
	long k = 0;

	for (bool failed = true; failed; k++) {
		struct ar_err err = { 0 };
		struct run_options o;
		struct run_command c;
		struct eval_args a;
		enum ar_status st;

		fault_arm(k);
		st = parse(&o, &c, &a, GIVEN " --method compact-fp,dense", &err);
		failed = fault_disarm();
		release(&o, &c);
		if (failed && st != AR_NOMEM)
			bail_out("allocation %ld: status %d, %s", k, st, err.msg);
	}
	ok(k > 20, "each of %ld allocations fails cleanly", k);
}

/* ---- a run ---- */

static char dir[] = "/tmp/t-eval-XXXXXX";
static const char tasks[] =
	"{\"task\":\"a\",\"length\":8,\"prompt\":[1,2,3],\"answer\":[4,5],\"ok\":true}\n"
	"{\"prompt\":[5,5],\"answer\":[[0],[1]],\"ok\":false}\n"
	"{\"task\":\"b\",\"prompt\":[0],\"answer\":[3,3,3]}\n";

static struct plan *plans[2], *decodes;

/* The requests of the file, loaded as eval_load() does, of methods with plans. */
static void load(struct eval *e, const char *text)
{
	static const struct trace_args all = { 0 };
	struct ar_err err = { 0 };
	char path[100];

	snprintf(path, sizeof path, "%s/t.jsonl", dir);
	file_write(path, text, strlen(text));
	*e = (struct eval){ .r.session.o.prompts = strdup(path) };
	e->r.in.n_runs = 2;
	e->r.in.plan = plans;
	e->r.in.model.vocab = VOCAB;
	e->r.in.model.tp = 1;
	e->r.in.limits = (struct sched_limits){ .policy = policies[0],
						.max_batched_tok = 64,
						.max_seqs = 8,
						.block_tok = 16,
						.max_len = 20 };
	if (trace_read(&e->r.in.trace, path, &all, &err) ||
	    prompts_read(&e->r.in.prompts, path, &err) ||
	    eval_results_open(&e->results, e->r.in.trace, VOCAB, 2, dir, &err))
		bail_out("%s", err.msg);
	e->watch = eval_watch(e);
}

static void unload(struct eval *e)
{
	eval_results_close(&e->results);
	prompts_release(&e->r.in.prompts);
	trace_free(e->r.in.trace);
	free(e->prompt);
	free(e->r.session.o.prompts);
}

static enum ar_status texts(struct eval *e, struct tokens_text *text, struct ar_err *err)
{
	free(e->prompt);
	e->prompt = NULL;
	return e->watch.texts(e, text, err);
}

static void test_texts(void)
{
	struct ar_err err = { 0 };
	struct tokens_text text[3] = { { 0 } };
	struct eval e;

	load(&e, tasks);
	if (!is_int(texts(&e, text, &err), AR_OK, "each request gets its prompt and answer"))
		bail_out("%s", err.msg);
	ok(text[0].n_prompt == 3 && text[0].prompt[2] == 3 && text[0].answer[1] == 5,
	   "... of its line");
	ok(text[2].n_prompt == 1 && text[2].answer[2] == 3 && text[1].answer[0] == 0, "... each");
	e.r.in.trace->req[0] = e.r.in.trace->req[2];
	e.r.in.trace->n = 1;
	ok(!texts(&e, text, &err) && text[0].n_prompt == 1, "... also where others are left out");
	unload(&e);
}

static void test_bad_texts(void)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "{\"prompt\":[1],\"answer\":[1]}\n{\"prompt\":[1,6],\"answer\":[1]}\n",
		  "t.jsonl:2: token 1 of the prompt is 6, but the vocabulary has 6; encode it "
		  "with the model's tokenizer" },
		{ "{\"prompt\":[1],\"answer\":[1,2,9]}\n",
		  "t.jsonl:1: token 2 of the answer is 9" },
		{ "{\"prompt\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"answer\":[1,2]}\n",
		  "t.jsonl:1: " },
	};
	struct tokens_text text[3];
	struct ar_err err = { 0 };
	struct eval e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		load(&e, bad[i].text);
		ok(texts(&e, text, &err) == AR_DATA && strstr(err.msg, bad[i].why), "refused: %s",
		   err.msg);
		unload(&e);
	}
	ok(strstr(err.msg, "t.jsonl:1: prompt and answer have 21 tokens, but the model or "
			   "--max-model-len allows 20; leave it out with --longest-prompt"),
	   "... and what to do");
	load(&e, tasks);
	e.r.in.trace->req[1].prompt_tok = 1;
	ok(texts(&e, text, &err) == AR_USAGE &&
		   strstr(err.msg,
			  "t.jsonl:2: the prompt has 2 tokens and the answer 1, but the run "
			  "1 and 1; leave out the options that change lengths"),
	   "a prompt that was cut is refused: %s", err.msg);
	e.r.in.trace->req[1].line = 9;
	ok(texts(&e, text, &err) == AR_DATA && strstr(err.msg, "changed while it was read"),
	   "a file that changed is found out");
	unload(&e);
}

static void test_text_memory(void)
{
	struct tokens_text text[3];
	struct eval e;
	long k = 0;

	load(&e, tasks);
	for (bool failed = true; failed; k++) {
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = texts(&e, text, &err);
		failed = fault_disarm();
		if (failed && st != AR_NOMEM)
			bail_out("allocation %ld: status %d", k, st);
	}
	is_int(k, 2, "the allocation fails cleanly");
	unload(&e);
}

/* Let request req see logits whose most likely tokens are its answer's.  right: false: but for the
 * last one. */
static void answer(struct eval *e, uint32_t req, bool right)
{
	const struct prompt *p = e->prompt[req];
	struct ar_err err = { 0 };

	for (uint32_t k = 0; k < p->n_answer; k++) {
		float logits[VOCAB] = { 0.5f, 0.25f };
		const int32_t gold = p->answer[k];

		logits[gold] = 2;
		logits[(gold + 1) % VOCAB] = right || k + 1 < p->n_answer ? 1 : 3;
		if (e->watch.see(e,
				 &(struct tokens_row){ .req = req,
						       .out = k,
						       .next = gold,
						       .logits = logits,
						       .n_logits = VOCAB },
				 &err))
			bail_out("%s", err.msg);
	}
}

static enum ar_status store_run(struct eval *e, size_t i, struct store *s, struct ar_err *err)
{
	static const struct sample_run r = { .method = "dense", .dense = true, .options = "{}" };
	static const struct backend no_kernels = { .name = "none" };
	const struct store_run record = sample_record(&r);
	const struct replay_result res = { .sample[ROW_PREFILL] = { .exec_sel = 30,
								    .exec_total = 120,
								    .n_heads = 2,
								    .recall_sum = 1.5,
								    .rel_l2_sum = 0.5 },
					   .sample[ROW_DECODE] = {
						   .exec_sel = 1, .exec_total = 8, .n_heads = 1 } };
	int64_t id;
	enum ar_status st = s ? store_run_begin(s, &record, &id, err) : AR_OK;

	e->r.session.backend = &no_kernels;
	if (!st)
		st = e->watch.end(e, i, &res, s, err);
	return st || !s ? st : store_run_end(s, "done", NULL, NULL, err);
}

static void test_rows(void)
{
	struct ar_err err = { 0 };
	struct tokens_text text[3];
	struct eval_expected x;
	struct store *s = NULL;
	struct eval_summary sum;
	struct eval e;
	char path[100];
	sqlite3 *db;

	snprintf(path, sizeof path, "%s/a.db", dir);
	load(&e, tasks);
	if (texts(&e, text, &err) || store_open(&s, path, &err))
		bail_out("%s", err.msg);
	e.watch.begin(&e, 0);
	answer(&e, 0, false);
	answer(&e, 1, false);
	if (store_run(&e, 0, s, &err))
		bail_out("%s", err.msg);
	e.watch.begin(&e, 1);
	answer(&e, 0, true);
	answer(&e, 2, true);
	if (store_run(&e, 1, s, &err) || store_close(s, &err) || store_open_read(&db, path, &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) = 4 AND sum(run_id = 1) = 2 AND sum(n_answer) = 8 "
		       "AND sum(exact) = 2 FROM eval_prompt"),
	       1, "answers are stored that the run gave in whole");
	is_int(ask(db,
		   "SELECT count(*) FROM eval_prompt WHERE run_id = 1 AND req_no = 0 AND "
		   "task = 'a' AND length = 8 AND n_answer = 2 AND n_best = 1 AND NOT exact AND "
		   "rank_max = 1 AND expected = 1 AND kl = 0"),
	       1, "... each with its task, length, and what the file says");
	is_int(ask(db, "SELECT count(*) FROM eval_prompt WHERE run_id = 1 AND req_no = 1 AND "
		       "task = '' AND length = 3 AND expected = 0"),
	       1, "... or without");
	is_int(ask(db, "SELECT count(*) FROM eval_prompt WHERE run_id = 2 AND req_no = 2 AND "
		       "expected IS NULL AND kl IS NULL"),
	       1, "... and without KL where dense attention has no logits");
	is_int(ask(db, "SELECT count(*) FROM eval_prompt p JOIN (SELECT run_id, req_no, "
		       "sum(logprob) AS logprob, sum(kl) AS kl, sum(rank = 0) AS n_best, max(rank) "
		       "AS rank_max, count(*) AS n FROM eval_token GROUP BY run_id, req_no) t "
		       "USING(run_id, req_no) WHERE abs(p.logprob - t.logprob) < 1e-12 AND "
		       "coalesce(abs(p.kl - t.kl) < 1e-12, p.kl IS t.kl) AND p.n_best = t.n_best "
		       "AND p.rank_max = t.rank_max AND p.n_answer = t.n"),
	       4, "... and its tokens, which sum to it");
	is_int(ask(db, "SELECT gold * 100 + best * 10 + rank FROM eval_token "
		       "WHERE run_id = 1 AND req_no = 0 AND out_no = 1"),
	       501, "a token that was not the most likely one");
	sqlite3_close(db);
	sum = eval_results_summary(&e.results, 1);
	ok(sum.run.executed == 0.25 && sum.run.recall == 0.75 && sum.run.rel_l2 == 0.25 &&
		   isnan(sum.run.ttft_ms),
	   "the summary has the figures of the run");
	ok(sum.n == 2 && sum.n_pair == 1 && sum.won == 1 && !sum.lost,
	   "... and counts its answers");
	x = eval_expected(&e);
	ok(x.n == 2 && x.agree == 1 && x.only_in_file == 1 && !x.only_here,
	   "answers are compared with what the file says");
	is_int(store_run(&e, 1, NULL, &err), AR_OK, "without a database nothing is stored");
	e.r.in.plan = (struct plan *[]){ plans[0], decodes };
	if (store_run(&e, 1, NULL, &err))
		bail_out("%s", err.msg);
	sum = eval_results_summary(&e.results, 1);
	ok(sum.run.executed == 0.125, "of a method of decodes they are of decodes");
	unload(&e);
}

static void test_row_memory(void)
{
	struct ar_err err = { 0 };
	struct tokens_text text[3];
	struct eval e;
	char path[100];
	long k = 0;

	snprintf(path, sizeof path, "%s/b.db", dir);
	load(&e, tasks);
	if (texts(&e, text, &err))
		bail_out("%s", err.msg);
	e.watch.begin(&e, 0);
	answer(&e, 0, true);
	for (bool failed = true; failed; k += fault_stride(7)) {
		struct store *s = NULL;
		enum ar_status st = store_open(&s, path, &err);

		if (st)
			bail_out("%s", err.msg);
		fault_arm(k);
		st = store_run(&e, 0, s, &err);
		if (!st)
			st = store_close(s, &err);
		else
			store_close(s, NULL);
		failed = fault_disarm();
		if (failed && st && st != AR_NOMEM)
			bail_out("allocation %ld: status %d, %s", k, st, err.msg);
	}
	ok(k > 1, "each of %ld allocations fails cleanly, or makes no difference", k);
	unload(&e);
}

/* ---- runs ---- */

/* Two prompts whose answers are arbitrary, for the tiny Qwen2. */
static void write_model(void)
{
	static const char text[] =
		"{\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,"
		"27,28,29,30,31,32,33,34,35,36,37,38,39,40],\"answer\":[41,42]}\n"
		"{\"prompt\":[60,50,40,30,20,10,5,15,25,35,45,55,65,1,2,3],\"answer\":[7]}\n";
	char path[100];

	tiny_folder(dir, &tiny_models[2]);
	snprintf(path, sizeof path, "%s/t.jsonl", dir);
	file_write(path, text, strlen(text));
}

#define DROPS "dense+lazyllm:layers=0:0.5+1:0.5"

static void test_try(void)
{
	static const struct run_setting setting[] = { { "accuracy", "1" }, { 0 } };
	char weights[] = "--weights", tasks_option[] = "--tasks", path[100],
	     backend[] = "--backend=cpu", method[] = "--method=" DROPS;
	char *argv[] = { weights, dir, tasks_option, path, backend, method };
	struct eval_summary dense, s, again;
	struct ar_err err = { 0 };
	struct eval e = { 0 };
	struct run_command c = eval_command(&e.a);

	c.setting = setting;
	write_model();
	snprintf(path, sizeof path, "%s/t.jsonl", dir);
	if (!is_int(eval_load(&e, &c, 6, argv, &err), AR_OK, "a model and its tasks are loaded"))
		bail_out("%s", err.msg);
	is_int(e.r.in.n_runs, 2, "... with dense attention");
	is_int(eval_run(&e, 0, &dense, &err), AR_OK, "dense attention runs");
	ok(dense.n == 2 && dense.logprob < 0 && dense.kl == 0 && dense.diff == 0 &&
		   dense.run.executed == 1 && dense.run.recall == 1,
	   "... and is compared with itself");
	is_int(eval_run(&e, 1, &s, &err), AR_OK, "a method runs");
	ok(s.n == 2 && s.n_pair == 2 && s.kl > 0 && s.diff == s.logprob - dense.logprob,
	   "... and is compared with dense attention");
	is_int(eval_try(&e, 1, "dense", &again, &err), AR_OK, "another one runs in its place");
	ok(again.kl == 0 && again.diff == 0 && again.logprob == dense.logprob,
	   "... with results of its own");
	is_int(eval_try(&e, 1, DROPS, &again, &err), AR_OK, "the first one runs again");
	ok(again.kl == s.kl && again.logprob == s.logprob, "... with the same results");
	ok(eval_try(&e, 1, "none", &again, &err) == AR_USAGE && strstr(err.msg, "a selector"),
	   "what is no method is refused: %s", err.msg);
	ok(eval_try(&e, 1, "0-9:dense", &again, &err) == AR_USAGE, "... or not of the model: %s",
	   err.msg);
	is_int(eval_run(&e, 1, &again, &err), AR_OK, "the one before it stays");
	ok(again.kl == s.kl, "... and gives what it gave");
	eval_release(&e);
}

static void test_load_memory(void)
{
	char weights[] = "--weights", tasks_option[] = "--tasks", path[100],
	     backend[] = "--backend=cpu";
	char *argv[] = { weights, dir, tasks_option, path, backend };
	long k = 0;

	snprintf(path, sizeof path, "%s/t.jsonl", dir);
	for (bool failed = true; failed; k += fault_stride(7)) {
		struct ar_err err = { 0 };
		enum ar_status st;
		struct eval e = { 0 };
		struct run_command c = eval_command(&e.a);

		fault_arm(k);
		st = eval_load(&e, &c, 5, argv, &err);
		failed = fault_disarm();
		eval_release(&e);
		if (failed && st != AR_NOMEM)
			bail_out("allocation %ld: status %d, %s", k, st, err.msg);
	}
	ok(k > 100, "each of %ld allocations of loading fails cleanly", k);
}

int main(void)
{
	struct ar_err err;
	char command[64];

	plan(0);
	if (!mkdtemp(dir))
		bail_out("cannot make a temporary folder");
	if (plan_parse(&plans[0], "dense", &err) || plan_parse(&plans[1], "compact-fp", &err) ||
	    plan_parse(&decodes, "dense/decode=quest", &err))
		bail_out("%s", err.msg);
	test_methods();
	test_refused();
	test_option_memory();
	test_texts();
	test_bad_texts();
	test_text_memory();
	test_rows();
	test_row_memory();
	test_try();
	test_load_memory();
	plan_free(plans[0]);
	plan_free(plans[1]);
	plan_free(decodes);
	snprintf(command, sizeof command, "rm -r %s", dir);
	if (system(command))
		bail_out("%s", command);
	return done_testing();
}
