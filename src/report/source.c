/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/source.h"

#include <string.h>
#include <unistd.h>

#include "base/number.h"

static void parse_operand(struct store_source *s, char *operand)
{
	char *colon = strrchr(operand, ':');
	uint64_t run;

	*s = (struct store_source){ .path = operand };
	if (!colon || !access(operand, F_OK) || !num_u64(colon + 1, strlen(colon + 1), &run) ||
	    !run || run > INT64_MAX)
		return;
	*colon = '\0';
	s->run = (int64_t)run;
}

void source_parse(struct store_source *source, char **operand, size_t n)
{
	for (size_t i = 0; i < n; i++)
		parse_operand(&source[i], operand[i]);
}
