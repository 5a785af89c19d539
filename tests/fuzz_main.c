/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/file.h"
#include "tests/fuzz.h"
#include "tests/tap.h"

static void run_file(const char *path)
{
	size_t n;
	unsigned char *data = file_read(path, &n);

	ok(!LLVMFuzzerTestOneInput(data, n), "%s does no harm",
	   strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	free(data);
}

static int is_visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* A file, or all files of a folder. */
static void run(const char *name)
{
	struct dirent **e;
	char path[4096];
	int n = scandir(name, &e, is_visible, alphasort);

	if (n < 0) {
		run_file(name);
		return;
	}
	if (!n)
		bail_out("no corpus in %s", name);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%s", name, e[i]->d_name);
		run_file(path);
		free(e[i]);
	}
	free(e);
}

/* The corpus, or the files and folders named on the command line. */
int main(int argc, char **argv)
{
	const char *srcdir = getenv("srcdir");
	char path[4096];

	plan(0);
	snprintf(path, sizeof path, "%s/tests/data/corpus/%s", srcdir ? srcdir : ".", fuzz_corpus);
	if (argc == 1)
		run(path);
	for (int i = 1; i < argc; i++)
		run(argv[i]);
	return done_testing();
}
