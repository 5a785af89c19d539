/* Allocations that fail on demand, for tests that link with $(FAULT_LINK). */
#ifndef AR_TESTS_ALLOC_FAULT_H
#define AR_TESTS_ALLOC_FAULT_H

#include <stdbool.h>

/* Let allocation number k, from 0, of any thread fail, once. */
void fault_arm(long k);

/* Stop faults.  Return whether an allocation failed since fault_arm. */
bool fault_disarm(void);

/* For other functions that a test wraps: count a call, and return whether it must fail. */
bool fault_now(void);

#endif
