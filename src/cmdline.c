/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "src/cmd.h"

char *cmd_line(const char *name, int argc, char **argv)
{
	static const char program[] = "attnreplay ";
	size_t n = sizeof program + strlen(name);
	char *s, *to;

	for (int i = 0; i < argc; i++)
		n += strlen(argv[i]) + 1;
	s = malloc(n);
	if (!s)
		return NULL;
	to = stpcpy(stpcpy(s, program), name);
	for (int i = 0; i < argc; i++)
		to = stpcpy(stpcpy(to, " "), argv[i]);
	return s;
}
