/* SPDX-License-Identifier: Apache-2.0 */
/* The table of selectors. */
#ifndef AR_SELECTORS_H
#define AR_SELECTORS_H

#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct selector *const selectors[]; /* ends with NULL */
const struct selector *selector_find(const char *name);

/* Check that s has every member that it needs for what it says it gives.  AR_USAGE: the message
 * names a member and says what to do. */
enum ar_status selector_check(const struct selector *s, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
