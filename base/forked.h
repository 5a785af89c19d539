/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that do not outlive the one that started them. */
#ifndef AR_FORKED_H
#define AR_FORKED_H

#include <sys/types.h>

/* As fork(), but the child gets signal sig when its parent ends, however soon that is. */
pid_t fork_bound(int sig);

/* As fork(), but the child is none of this process, which need not wait for its end.  The parent
 * gets 1 for it. */
pid_t fork_apart(void);

#endif
