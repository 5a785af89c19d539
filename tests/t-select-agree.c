/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay select on a real capture: the kernels of every selector select the same as its
 * reference.  The chunks are the first chunk of a prompt, a chunk that begins and ends inside
 * blocks, and a short last chunk.
 *
 * Where rounding decides, both results are right.  The reference defines this band: the cells
 * between its selections under a slightly stricter and a slightly looser parameter.  A few more
 * cells may differ (slack), because equal sums change ranks.  The reference itself must lie in its
 * band. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "tests/file.h"
#include "tests/gate_file.h"
#include "tests/gpu.h"
#include "tests/tap.h"

/* strict and loose NULL: there is no band. */
static const struct {
	const char *method, *value, *strict, *loose; /* value in place of % */
	double slack; /* share of the cells that may be outside of the band */
} rules[] = {
	{ "dense", "", NULL, NULL, 0 },
	{ "trishape:start=128,recent=256", "", NULL, NULL, 0 },
	{ "ashape:init=100,local=300", "", NULL, NULL, 0 },
	{ "select=density,density=0.4/union=none/exec=blocksparse", "", NULL, NULL, 0 },
	{ "flashprefill:sink=1,window=1,dense-first=0,alpha=%", "0.05", "0.050025", "0.049975", 0 },
	{ "compact-fp:sink=0,window=2,alpha=%", "0.3", "0.30015", "0.29985", 0 },
	{ "seer:gate=agree.gate,threshold=%", "0.05", "0.055", "0.045", 0 },
	{ "xattention:threshold=%", "0.8", "0.799", "0.801", 0.01 },
	{ "xattention:stride=16,block=64,threshold=%", "0.9", "0.899", "0.901", 0.01 },
	{ "flexprefill:tau=0,min-budget=128,gamma=%", "0.8", "0.799", "0.801", 0.01 },
	{ "flexprefill:tau=1,min-budget=128,gamma=%", "0.8", "0.799", "0.801", 0.01 },
	{ "bfla:block=128,local=0,min-tokens=1,mass=%", "0.9", "0.8995", "0.9005", 0.01 },
	{ "bfla:pool=mean,min-tokens=1,stride=7,mass=%", "0.8", "0.7995", "0.8005", 0.01 },
	{ "proxyattn:groups=2,mass=%", "0.8", "0.7995", "0.8005", 0.01 },
	{ "select=oracle,density=%/union=none/exec=blocksparse", "0.3", "0.297", "0.303", 0.01 },
	{ "quoka:kv-ratio=%", "0.25", "0.22", "0.28", 0.03 },
	{ "minference:vertical=60,slash=150", "", NULL, NULL, 0.02 },
	{ "minference:pattern=agree.json,blocks=3", "", NULL, NULL, 0.02 },
};
enum { N_RULE = sizeof rules / sizeof *rules };

static const struct {
	const char *what;
	int context, chunk;
} places[] = {
	{ "the first chunk", 0, 400 },
	{ "one in the middle", 700, 200 },
	{ "the last one", 2000, 104 },
};
enum { N_PLACE = sizeof places / sizeof *places, MIDDLE = 1 };
enum { N_BAND = 12, N_TEST = N_RULE * N_PLACE + N_BAND };

/* ---- selections of the program ---- */

enum { HEADS = 8, ROWS = 16, KEYS = 2304, CELLS = HEADS * ROWS * KEYS };

/* Keys that are listed, and of how many: [head][query block][key]; of blocks the number of a block
 * stands for a key, of token lists there is one query block. */
struct shown {
	unsigned char on[CELLS];
	int cells;
	double error[HEADS];
};

static void mark(struct shown *x, int head, int row, const cJSON *list, int width)
{
	const cJSON *at;

	if (head >= HEADS || row >= ROWS)
		bail_out("a selection is larger than this test");
	cJSON_ArrayForEach(at, list)
		for (int i = 0; i < width; i++) {
			int key = at->valueint + i;

			if (key < 0 || key >= KEYS)
				bail_out("key %d is none", key);
			x->on[(head * ROWS + row) * KEYS + key] = 1;
		}
}

static void mark_heads(struct shown *x, const cJSON *heads, int width)
{
	const cJSON *head, *row;
	int h = 0;

	cJSON_ArrayForEach(head, heads) {
		int i = 0;

		cJSON_ArrayForEach(row, head)
			mark(x, h, i++, row, width);
		h++;
	}
}

static int member(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	if (!cJSON_IsNumber(v))
		bail_out("no %s", name);
	return v->valueint;
}

static void read_shown(struct shown *x, const cJSON *o)
{
	const cJSON *blocks = cJSON_GetObjectItemCaseSensitive(o, "blocks"), *list;
	const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(o, "tokens"), *acc;
	int end = member(o, "context") + member(o, "chunk"), tok = member(o, "block_tokens"), i = 0;

	*x = (struct shown){ .cells = HEADS * member(o, "query_blocks") *
				      (blocks ? (end + tok - 1) / tok : end) };
	if (blocks) {
		mark_heads(x, blocks, 1);
	} else if (tokens) {
		x->cells = member(o, "kv_heads") * member(o, "context");
		cJSON_ArrayForEach(list, tokens)
			mark(x, i++, 0, list, 1);
	} else {
		mark_heads(x, cJSON_GetObjectItemCaseSensitive(o, "runs"), tok);
		mark_heads(x, cJSON_GetObjectItemCaseSensitive(o, "columns"), 1);
	}
	i = 0;
	cJSON_ArrayForEach(acc, cJSON_GetObjectItemCaseSensitive(o, "accuracy")) {
		const cJSON *v = cJSON_GetObjectItemCaseSensitive(acc, "rel_l2");

		if (i < HEADS)
			x->error[i++] = cJSON_IsNumber(v) ? v->valuedouble : NAN;
	}
	if (i != HEADS)
		bail_out("there are %d heads", i);
}

/* Which of a rule's values stands for %. */
enum which { VALUE, STRICT, LOOSE };

static bool has(int rule, enum which which)
{
	return which == VALUE || rules[rule].strict;
}

static const char *value_of(int rule, enum which which)
{
	return which == STRICT ? rules[rule].strict :
	       which == LOOSE  ? rules[rule].loose :
				 rules[rule].value;
}

/* All rules at one place, in one run of the program; of values that make a band those that have
 * one. */
static struct shown *show(const char *backend, int place, enum which which)
{
	struct shown *x = calloc(N_RULE, sizeof *x);
	const cJSON *o, *root;
	char cmd[4096], *text;
	struct ar_err err;
	size_t n;
	int status, shown = 0;
	cJSON *json;

	n = (size_t)snprintf(cmd, sizeof cmd,
			     "\"$ATTNREPLAY\" -q select --capture "
			     "\"$ATTNREPLAY_DATA\"/traces/samples/niah-2k.arc --model "
			     "niah-llama-14m --picture none "
			     "--context %d --chunk %d --backend %s --json agree-out.json --method ",
			     places[place].context, places[place].chunk, backend);
	for (int r = 0; r < N_RULE; r++) {
		const char *cut = strchr(rules[r].method, '%');

		if (!has(r, which))
			continue;
		n += (size_t)snprintf(cmd + n, sizeof cmd - n, "%s%.*s%s%s", shown++ ? "," : "",
				      cut ? (int)(cut - rules[r].method) : 999, rules[r].method,
				      value_of(r, which), cut ? cut + 1 : "");
	}
	snprintf(cmd + n, sizeof cmd - n, " >/dev/null");
	status = system(cmd);
	if (!x || !WIFEXITED(status) || WEXITSTATUS(status))
		bail_out("%s: status %d", cmd, status);
	gate_must(text_read(&text, "agree-out.json", 64 << 20, &err), &err);
	json = cJSON_Parse(text);
	root = cJSON_GetObjectItemCaseSensitive(json, "selections");
	if (cJSON_GetArraySize(root) != shown)
		bail_out("there are %d selections", cJSON_GetArraySize(root));
	o = root->child;
	for (int r = 0; r < N_RULE; r++)
		if (has(r, which)) {
			read_shown(&x[r], o);
			o = o->next;
		}
	cJSON_Delete(json);
	free(text);
	return x;
}

/* ---- the comparison ---- */

/* Cells that are kept though the loose selection leaves them out, or left out though the strict one
 * keeps them. */
static int outside(const struct shown *x, const struct shown *strict, const struct shown *loose)
{
	int n = 0;

	for (int i = 0; i < CELLS; i++)
		n += x->on[i] ? !strict->on[i] && !loose->on[i] : strict->on[i] && loose->on[i];
	return n;
}

static bool as_far_from_dense(const struct shown *a, const struct shown *b)
{
	for (int h = 0; h < HEADS; h++)
		if (!(fabs(a->error[h] - b->error[h]) < 0.01))
			return false;
	return true;
}

/* x: one selection for each rule; own: the reference's, which is compared with its bands alone and
 * without slack. */
static void compare(const char *backend, int place, struct shown *const band[3],
		    const struct shown *x, bool own)
{
	for (int r = 0; r < N_RULE; r++) {
		const struct shown *want = &band[VALUE][r];
		bool banded = has(r, STRICT), equal = !memcmp(x[r].on, want->on, CELLS);
		int out = outside(&x[r], banded ? &band[STRICT][r] : want,
				  banded ? &band[LOOSE][r] : want);

		if (own && !banded)
			continue;
		ok(out <= (own ? 0 : rules[r].slack * x[r].cells) &&
			   (!equal || as_far_from_dense(&x[r], want)),
		   "%s, %s, %s: %d of %d cells outside of the band", backend, places[place].what,
		   rules[r].method, out, x[r].cells);
	}
}

static void test_place(int place, bool gpu)
{
	struct shown *band[3], *x;

	for (int i = 0; i < 3; i++)
		band[i] = show("cpu", place, (enum which)i);
	if (place == MIDDLE)
		compare("cpu", place, band, band[VALUE], true);
	if (gpu) {
		x = show("cuda", place, VALUE);
		compare("cuda", place, band, x, false);
		free(x);
	}
	for (int i = 0; i < 3; i++)
		free(band[i]);
}

/* ---- files ---- */

static void write_files(void)
{
	static const char heads[] =
		"{\"0\":[\"vertical_and_slash\",40,120,1],"
		"\"1\":[\"stream_llm\",70,200,1],\"2\":[\"block_sparse\",3,1,1],"
		"\"3\":[\"vertical_and_slash\",200,60,1],\"5\":[\"block_sparse\",3,1,1],"
		"\"6\":[\"vertical_and_slash\",30,700,1],\"7\":[\"stream_llm\",0,1,1]}";
	struct rng rng = { 12 };
	char text[8192] = "[";

	for (int l = 0; l < 8; l++) {
		strcat(text, l ? "," : "");
		strcat(text, heads);
	}
	strcat(text, "]");
	file_write("agree.json", text, strlen(text));
	gate_write("agree.gate", &(struct gate_file){ 1, HEADS, 0, 128 }, 5, 1, &rng, NULL);
}

int main(void)
{
	char folder[] = "/tmp/t-select-agree-XXXXXX";
	bool gpu;

	plan(N_TEST);
	log_level = LOG_ERROR;
	if (!mkdtemp(folder) || chdir(folder))
		bail_out("no temporary folder");
	write_files();
	gpu = gpu_usable();
	for (int i = 0; i < N_PLACE; i++)
		if (gpu || (i == MIDDLE && !sanitized()))
			test_place(i, gpu);
	if (!gpu)
		skip(N_RULE * N_PLACE, "no usable GPU");
	if (!gpu && sanitized())
		skip(N_BAND, "sums, not accesses; the build without sanitizers tests them");
	unlink("agree.json");
	unlink("agree.gate");
	unlink("agree-out.json");
	rmdir(folder);
	return done_testing();
}
