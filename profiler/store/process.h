/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a run: whether it lives, as far as this process can know. */
#ifndef AR_STORE_PROCESS_H
#define AR_STORE_PROCESS_H

#include <stdint.h>

/* Columns of a run's row. */
struct process {
	int64_t pid, start;  /* start: in clock ticks since boot */
	const char *boot_id; /* of the host; NULL: not known */
	int64_t ns;	     /* PID namespace; -1: not known */
};

enum process_state {
	PROCESS_LIVES,
	PROCESS_ENDED,	/* also while it waits for its parent */
	PROCESS_UNKNOWN /* a pid of another host, boot or PID namespace */
};

/* A process of this host, boot and PID namespace.  boot_id is a
 * thread's own, valid until its next call. */
struct process process_here(int64_t pid);
enum process_state process_state(const struct process *p);

#endif
