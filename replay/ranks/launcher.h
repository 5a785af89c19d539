/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank a process is, as the launcher that started it says in the environment. */
#ifndef AR_LAUNCHER_H
#define AR_LAUNCHER_H

#include <stdint.h>

#include "base/status.h"

enum { LAUNCH_KEY_SIZE = 33 }; /* 32 hex digits and NUL */

struct launched_rank {
	const char *launcher; /* its name */
	int rank, size;
	int local;		   /* rank among those of its host, from 0; -1: not known */
	char key[LAUNCH_KEY_SIZE]; /* equal in ranks that were started together, and of later
				    * starts another, if the launcher tells */
};

/* AR_USAGE: no launcher started this process, or a variable of it is no number in range. */
enum ar_status launcher_ask(struct launched_rank *out, struct ar_err *err);

#endif
