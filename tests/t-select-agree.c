/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay select on a real capture: the kernels of every selector select the same as its
 * reference.  There are three chunks: the first of a prompt, one that begins and ends inside
 * blocks, and a short last one.
 *
 * Descriptors bring the methods, each with the band of selections that are right (selector.band).
 * The reference itself must lie in its band. */
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
#include "kernels/select/selectors.h"
#include "tests/file.h"
#include "tests/gate_file.h"
#include "tests/gpu_test.h"
#include "tests/selector_case.h"
#include "tests/tap.h"

enum { MAX_RULE = 256 };
static const struct selector_band *rules[MAX_RULE];
static int n_rule, n_band; /* n_band: rules with strict and loose */
static char plugins[8192]; /* options that load them */

static const struct {
	const char *what;
	int context, chunk;
} places[] = {
	{ "the first chunk", 0, 400 },
	{ "one in the middle", 700, 200 },
	{ "the last one", 2000, 104 },
};
enum { N_PLACE = sizeof places / sizeof *places, MIDDLE = 1 };

static void find_rules(int first)
{
	for (int i = first; selectors[i]; i++)
		for (const struct selector_band *b = selectors[i]->band; b && b->method; b++) {
			if (n_rule == MAX_RULE)
				bail_out("more bands than this test has room for: raise MAX_RULE");
			rules[n_rule++] = b;
			n_band += !!b->strict;
		}
}

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
	return which == VALUE || rules[rule]->strict;
}

static const char *value_of(int rule, enum which which)
{
	return which == STRICT ? rules[rule]->strict :
	       which == LOOSE  ? rules[rule]->loose :
				 rules[rule]->value;
}

/* All rules at one place, in one run of the program.  STRICT and LOOSE: only the rules that have
 * such a value. */
static struct shown *show(const char *backend, int place, enum which which)
{
	struct shown *x = calloc((size_t)n_rule, sizeof *x);
	const cJSON *o, *root;
	char cmd[32768], *text;
	struct ar_err err;
	size_t n;
	int status, shown = 0;
	cJSON *json;

	n = (size_t)snprintf(cmd, sizeof cmd,
			     "\"$ATTNREPLAY\" -q select --capture "
			     "\"$ATTNREPLAY_DATA\"/traces/samples/niah-2k.arc --model "
			     "niah-llama-14m --picture none "
			     "--context %d --chunk %d --backend %s --json agree-out.json "
			     "%s--method ",
			     places[place].context, places[place].chunk, backend, plugins);
	for (int r = 0; r < n_rule; r++) {
		if (!has(r, which))
			continue;
		n += (size_t)snprintf(cmd + n, sizeof cmd - n, "%s", shown++ ? "," : "");
		n += selector_text(cmd + n, sizeof cmd - n, rules[r]->method, value_of(r, which));
		if (n + 32 > sizeof cmd)
			bail_out("the methods do not fit: make cmd larger");
	}
	if (!shown)
		return x;
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
	for (int r = 0; r < n_rule; r++)
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
	for (int r = 0; r < n_rule; r++) {
		const struct shown *want = &band[VALUE][r];
		bool banded = has(r, STRICT), equal = !memcmp(x[r].on, want->on, CELLS);
		int out = outside(&x[r], banded ? &band[STRICT][r] : want,
				  banded ? &band[LOOSE][r] : want);

		if (own && !banded)
			continue;
		ok(out <= (own ? 0 : rules[r]->slack * x[r].cells) &&
			   (!equal || as_far_from_dense(&x[r], want)),
		   "%s, %s, %s: %d of %d cells outside of the band", backend, places[place].what,
		   rules[r]->method, out, x[r].cells);
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

/* The paths stay right in another folder. */
static void load_files(int argc, char **argv)
{
	size_t n = 0;

	for (int i = 1; i < argc; i++) {
		char *path = realpath(argv[i], NULL);

		argv[i] = path ? path : argv[i];
		n += (size_t)snprintf(plugins + n, sizeof plugins - n, "--selector '%s' ", argv[i]);
		if (n >= sizeof plugins)
			bail_out("paths are too long");
	}
	find_rules(selector_first(argc, argv));
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/t-select-agree-XXXXXX";
	bool gpu;

	load_files(argc, argv);
	plan((unsigned)(n_rule * N_PLACE + n_band));
	log_level = LOG_ERROR;
	if (!mkdtemp(folder) || chdir(folder))
		bail_out("no temporary folder");
	write_files();
	gpu = gpu_usable();
	for (int i = 0; i < N_PLACE; i++)
		if (gpu || (i == MIDDLE && !sanitized()))
			test_place(i, gpu);
	if (!gpu)
		skip((unsigned)(n_rule * N_PLACE), "no usable GPU");
	if (!gpu && sanitized())
		skip((unsigned)n_band,
		     "sums, not accesses; the build without sanitizers tests them");
	unlink("agree.json");
	unlink("agree.gate");
	unlink("agree-out.json");
	rmdir(folder);
	return done_testing();
}
