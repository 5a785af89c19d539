/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/store_case.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/tap.h"

const struct sample_run case_dense = {
	.method = "dense", .dense = true, .percent = 100, .options = CASE_OPTIONS, .full = true
};
const struct sample_run case_sparse = {
	.method = "compact-fp", .percent = 50, .options = CASE_OPTIONS, .full = true
};

static char dir[] = "/tmp/t-store-XXXXXX";

void case_begin(void)
{
	if (!mkdtemp(dir))
		bail_out("cannot make a temporary folder");
}

void case_end(void)
{
	char command[64];

	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command))
		diag("cannot remove %s", dir);
}

const char *in_dir(const char *name)
{
	static char path[4][256];
	static int next;
	char *p = path[next++ & 3];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

struct store *open_store(const char *path)
{
	struct ar_err err;
	struct store *s;

	if (store_open(&s, path, &err))
		bail_out("%s", err.msg);
	return s;
}

int64_t write_run(struct store *s, const struct sample_run *r)
{
	struct ar_err err;
	int64_t id = 0;

	if (sample_write(s, r, &id, &err))
		bail_out("%s", err.msg);
	return id;
}
