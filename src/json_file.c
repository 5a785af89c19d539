/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/json_file.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"

bool json_file_alone(const char *path)
{
	return path && !strcmp(path, "-");
}

enum ar_status json_file_open(struct outfile *f, const char *path, struct ar_err *err)
{
	return path ? outfile_open(f, json_file_alone(path) ? "/dev/stdout" : path, err) : AR_OK;
}

enum ar_status json_file_end(struct outfile *f, cJSON *o, struct ar_err *err)
{
	enum ar_status st = json_put(o, f->f, err);

	putc('\n', f->f);
	if (!st && ferror(f->f)) /* now, while errno has the cause */
		st = ar_fail(err, AR_IO, "%s: cannot write: %s", f->path, strerror(errno));
	return st ? st : outfile_commit(f, err);
}

enum ar_status json_file_write(const char *path, cJSON *o, struct ar_err *err)
{
	struct outfile f;
	enum ar_status st = json_file_open(&f, path, err);

	if (st) {
		cJSON_Delete(o);
		return st;
	}
	st = json_file_end(&f, o, err);
	outfile_release(&f);
	return st;
}
