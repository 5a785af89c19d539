/* Fuzz target: any bytes as each of the small files that options and parameters name: models,
 * gates, patterns, thresholds, job files.  The file must be read, or refused with a message. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/opt.h"
#include "kernels/methods/method.h"
#include "model/model.h"
#include "tests/fuzz.h"

const char fuzz_corpus[] = "files";

static void must(bool x, const char *what)
{
	if (!x) {
		fprintf(stderr, "fuzz-files: %s\n", what);
		abort();
	}
}

static void told(const struct ar_err *err)
{
	must(*err->msg && err->status, "a failure without a message");
}

static void as_model(const char *path)
{
	struct ar_err err = { 0 };
	struct model m;

	if (model_load(&m, path, &err)) {
		told(&err);
		return;
	}
	must(m.n_layers > 0 && m.hidden > 0 && m.head_dim > 0 && m.kv_heads > 0 &&
	     m.q_heads >= m.kv_heads && m.vocab > 0, "a model without a size");
	if (model_split(&m, 2, &err))
		told(&err);
	model_release(&m);
}

static void as_parameter(const char *what, const char *path)
{
	static const float inv[4] = { 1, 0.1f, 0.01f, 0.001f };
	static const struct selector_env env = { .shape = { 2, 1, 8, 128 }, .n_layers = 3,
						 .rope_inv = inv };
	char text[100];
	struct ar_err err = { 0 };
	struct method *m;

	snprintf(text, sizeof text, "%s=%s", what, path);
	must(!method_parse(&m, text, &err), err.msg);
	if (method_open(m, &env, &err))
		told(&err);
	method_free(m);
}

static void as_job(const char *path)
{
	static const char *const choice[] = { "no", "yes", NULL };
	struct all {
		bool flag;
		int64_t n, ns;
		double x;
		char *s;
		struct opt_list list;
		int which;
	} all = { 0 };
#define AT(field) offsetof(struct all, field)
	static const struct opt opts[] = {
		{ "flag", OPT_FLAG, AT(flag), NULL, NULL, 0, 0, NULL, "flag", 0 },
		{ "n", OPT_INT, AT(n), "N", "7", 1, 1000, NULL, "number", 0 },
		{ "time", OPT_TIME, AT(ns), "T", "6ms", 0, 0, NULL, "time", 0 },
		{ "x", OPT_REAL, AT(x), "X", "0.5", 0, 1, NULL, "share", 0 },
		{ "name", OPT_STR, AT(s), "NAME", "a", 0, 0, NULL, "text", 0 },
		{ "file", OPT_LIST, AT(list), "FILE", NULL, 0, 0, NULL, "texts", 0 },
		{ "which", OPT_ENUM, AT(which), "HOW", "no", 0, 0, choice, "choice", 0 },
		{ "job", OPT_JOB, 0, "FILE", NULL, 0, 0, NULL, "file", 0 },
		{ 0 }
	};
#undef AT
	struct opt_group g[] = { { "All", opts, &all, 0, 0 }, { 0 } };
	struct ar_err err = { 0 };

	must(!opt_init(g, &err), err.msg);
	if (opt_load(g, path, &err))
		told(&err);
	must(all.n >= 1 && all.n <= 1000 && all.x >= 0 && all.x <= 1 && all.which <= 1,
	     "a value out of its range");
	opt_release(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char path[] = "/tmp/fuzz-files-XXXXXX";
	int fd = mkstemp(path);

	must(fd >= 0 && write(fd, data, n) == (ssize_t)n, "no file");
	close(fd);
	as_model(path);
	as_parameter("minference:pattern", path);
	as_parameter("seer:gate", path);
	as_parameter("xattention:table", path);
	as_job(path);
	unlink(path);
	return 0;
}
