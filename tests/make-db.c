/* SPDX-License-Identifier: Apache-2.0 */
/* make-db FILE writes the sample database for the shell tests.  Without an argument it is a test of
 * its own. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sample_db.h"
#include "tests/tap.h"

int main(int argc, char **argv)
{
	struct ar_err err = { 0 };
	char path[] = "/tmp/make-db-XXXXXX";
	int fd;

	if (argc > 1) {
		enum ar_status st = sample_database(argv[1], &err);

		if (st)
			fprintf(stderr, "%s\n", err.msg);
		return ar_exit_code(st);
	}
	plan(1);
	fd = mkstemp(path);
	if (fd < 0)
		bail_out("cannot make a temporary file");
	close(fd);
	ok(!sample_database(path, &err), "the sample database is written into an empty file");
	if (*err.msg)
		diag("%s", err.msg);
	unlink(path);
	return done_testing();
}
