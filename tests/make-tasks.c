/* SPDX-License-Identifier: Apache-2.0 */
/* make-tasks FOLDER writes a tiny random model and FOLDER/tasks.jsonl for the shell tests: two
 * tasks of three prompts each, with the answers of dense attention; "wrong" has another last
 * token.  Without an argument it is a test of its own. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "replay/forward/forward.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

enum { LEN = 800, PROMPTS = 6 };
static const int prompt_len[PROMPTS] = { 300, 300, 520, 520, 90, 90 };

/* The tiny Qwen2, for longer prompts than other tests need. */
static void write_model(const char *dir)
{
	static const char key[] = "\"max_position_embeddings\":64";
	const struct tiny *m = &tiny_models[2];
	char path[256], text[1200];
	unsigned char *config;
	const char *at;
	size_t n;

	tiny_folder(dir, m);
	snprintf(path, sizeof path, "%s/config.json", dir);
	config = file_read(path, &n);
	at = memmem(config, n, key, strlen(key));
	if (!at)
		bail_out("%s: no %s", path, key);
	snprintf(text, sizeof text, "%.*s\"max_position_embeddings\":%d%.*s",
		 (int)(at - (const char *)config), (const char *)config, LEN,
		 (int)((const char *)config + n - at - strlen(key)), at + strlen(key));
	file_write(path, text, strlen(text));
	free(config);
}

static int best_of(const float *x)
{
	int best = 0;

	for (int i = 1; i < TINY_VOCAB; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

static void put_ids(const int32_t *id, int n, FILE *f)
{
	for (int i = 0; i < n; i++)
		fprintf(f, "%s%d", i ? "," : "[", id[i]);
	fputc(']', f);
}

/* Decode n tokens greedily behind the prompt of id. */
static void decode(const struct weights *w, int32_t *id, int n_prompt, int n)
{
	struct ar_err err = { 0 };
	float logits[TINY_VOCAB];
	struct forward *f;

	if (forward_open(&f, w, LEN, NULL, NULL, &err))
		bail_out("%s", err.msg);
	for (int k = 0, from = 0, to = n_prompt; k < n; k++, from = to++) {
		if (forward_run(f, id + from, to - from, &err) ||
		    forward_logits(f, to - from - 1, 1, logits, &err))
			bail_out("%s", err.msg);
		id[to] = best_of(logits);
	}
	forward_close(f);
}

static void put_prompt(const struct weights *w, int i, FILE *f)
{
	const int n = prompt_len[i], n_answer = 3 + i % 3;
	struct rng r = { (uint64_t)i + 5 };
	int32_t id[LEN];
	bool right = i % 2 == 0;

	for (int k = 0; k < n; k++)
		id[k] = (int32_t)rng_below(&r, TINY_VOCAB);
	decode(w, id, n, n_answer);
	if (!right)
		id[n + n_answer - 1] = (id[n + n_answer - 1] + 1) % TINY_VOCAB;
	fprintf(f, "{\"task\":\"%s\",\"length\":%d,\"prompt\":", right ? "right" : "wrong", n);
	put_ids(id, n, f);
	fputs(i == 2 ? ",\"answer\":[" : ",\"answer\":", f);
	put_ids(id + n, n_answer, f);
	fprintf(f, "%s%s}\n", i == 2 ? ",[1,2]]" : "",
		i > 3 ? "" :
		right ? ",\"ok\":true" :
			",\"ok\":false");
}

static void make(const char *dir)
{
	struct ar_err err = { 0 };
	struct weights w;
	char path[256];
	FILE *f;

	write_model(dir);
	snprintf(path, sizeof path, "%s/tasks.jsonl", dir);
	f = fopen(path, "w");
	if (!f || weights_open(&w, dir, &err))
		bail_out("%s: %s", path, err.msg);
	for (int i = 0; i < PROMPTS; i++)
		put_prompt(&w, i, f);
	weights_release(&w);
	if (fclose(f))
		bail_out("%s", path);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/make-tasks-XXXXXX", command[128];

	if (argc > 1) {
		make(argv[1]);
		return 0;
	}
	plan(1);
	if (!mkdtemp(dir))
		bail_out("cannot make a temporary folder");
	make(dir);
	snprintf(command, sizeof command, "test -s %s/tasks.jsonl && rm -r %s", dir, dir);
	ok(!system(command), "a model and tasks are written");
	return done_testing();
}
