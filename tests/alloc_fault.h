/* Allocations that fail on demand, for tests that link with $(FAULT_LINK). */
#ifndef AR_TESTS_ALLOC_FAULT_H
#define AR_TESTS_ALLOC_FAULT_H

#include <stdbool.h>

/* From now on allocation number k, from 0, of any thread fails; one fault, then no more. */
void fault_arm(long k);

/* No fault from now on.  Whether there was one since fault_arm. */
bool fault_disarm(void);

/* For further functions that a test wraps: count a call, and say whether it is to fail. */
bool fault_now(void);

#endif
