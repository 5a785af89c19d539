/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/file.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/tap.h"

void file_write(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(p, 1, n, f) != n || fclose(f))
		bail_out("cannot write %s", path);
}

unsigned char *file_read(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	unsigned char *p;

	if (!f || fseek(f, 0, SEEK_END))
		bail_out("cannot read %s", path);
	*n = (size_t)ftell(f);
	rewind(f);
	p = malloc(*n + 1);
	if (!p || fread(p, 1, *n, f) != *n)
		bail_out("cannot read %s", path);
	fclose(f);
	return p;
}
