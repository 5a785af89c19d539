/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations and threads that fail on demand, in every test program. */
#ifndef AR_TESTS_ALLOC_FAULT_H
#define AR_TESTS_ALLOC_FAULT_H

#include <stdbool.h>

/* Let allocation number k, from 0, of any thread fail, once. */
void fault_arm(long k);

/* Stop faults.  Return whether an allocation failed since fault_arm. */
bool fault_disarm(void);

/* fail: no thread can be made from now on.  Otherwise threads are to be had again. */
void fault_threads(bool fail);

#endif
