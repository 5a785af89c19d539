/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/hello.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x6c6c6568, PROTOCOL = 1, SHOWN = 64 /* characters of a value in a message */ };

struct head {
	uint32_t magic, protocol;
	uint64_t size; /* of the lines, with their NUL */
};

static int name_length(const char *line)
{
	return (int)strcspn(line, "=\n");
}

static const char *value_of(const char *line)
{
	line += name_length(line);
	return *line == '=' ? line + 1 : line;
}

static int value_length(const char *line)
{
	const size_t n = strcspn(value_of(line), "\n");

	return (int)(n < SHOWN ? n : SHOWN);
}

/* The order of the names of two lines; the end of a text is behind all. */
static int order_of(const char *a, const char *b)
{
	const int n = name_length(a), m = name_length(b);
	const int order = strncmp(a, b, (size_t)(n < m ? n : m));

	if (!*a || !*b)
		return !*a - !*b;
	return order ? order : n - m;
}

static enum ar_status differ(int rank, const char *its, const char *first, struct ar_err *err)
{
	const int order = order_of(its, first);
	const char *name = order > 0 ? first : its;

	return ar_fail(err, AR_USAGE,
		       "rank %d has another %.*s than rank 0: '%.*s' instead of '%.*s'; give all "
		       "ranks the same",
		       rank, name_length(name), name, order > 0 ? 0 : value_length(its),
		       value_of(its), order < 0 ? 0 : value_length(first), value_of(first));
}

static enum ar_status compare(int rank, const char *its, const char *first, struct ar_err *err)
{
	while (*first && *its) {
		const size_t n = strcspn(first, "\n") + 1;

		if (strncmp(its, first, n) != 0)
			break;
		its += n;
		first += n;
	}
	return *first || *its ? differ(rank, its, first, err) : AR_OK;
}

static enum ar_status compare_heads(const struct head *all, int n, size_t *most, struct ar_err *err)
{
	*most = 0;
	for (int i = 0; i < n; i++) {
		if (all[i].magic != MAGIC || all[i].protocol != all[0].protocol)
			return ar_fail(err, AR_USAGE,
				       "rank %d is of another program than rank 0; start the same "
				       "version on all hosts",
				       i);
		if (all[i].size > *most)
			*most = all[i].size;
	}
	return AR_OK;
}

enum ar_status hello_same(struct world *w, const char *lines, struct ar_err *err)
{
	const struct head mine = { MAGIC, PROTOCOL, strlen(lines) + 1 };
	const int n = world_size(w);
	struct head head[RANKS_MAX];
	char *text = NULL;
	size_t most = 0;
	enum ar_status st = world_gather(w, &mine, head, sizeof mine, err);

	if (!st)
		st = world_agree(w, compare_heads(head, n, &most, err));
	if (st)
		return st;
	text = calloc((size_t)n + 1, most); /* ours, and those of all */
	if (!text)
		return ar_nomem(err);
	memcpy(text, lines, mine.size);
	st = world_gather(w, text, text + most, most, err);
	for (int i = 1; i < n && !st; i++)
		st = world_agree(w, compare(i, text + most * (size_t)(i + 1), text + most, err));
	free(text);
	return st;
}
