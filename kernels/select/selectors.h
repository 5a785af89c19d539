/* SPDX-License-Identifier: Apache-2.0 */
/* The table of selectors. */
#ifndef AR_SELECTORS_H
#define AR_SELECTORS_H

#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The selectors of chunks in this program, then plug-ins in the order in which they were loaded;
 * ends with NULL. */
enum { SELECTORS_MAX = 32 };
extern const struct selector *const *const selectors;
/* Those that choose the keys of decodes; ends with NULL. */
extern const struct selector *const decode_selectors[];
const struct selector *selector_find(const char *name);

/* Check that s has every member that it needs for the selection that it gives.  AR_USAGE: the
 * message names a member and says what to do. */
enum ar_status selector_check(const struct selector *s, struct ar_err *err);

/* Add s, which stays valid, to the table.  AR_USAGE: as from selector_check(), or its name is
 * taken, or there is no room. */
enum ar_status selector_add(const struct selector *s, struct ar_err *err);

/* CUDA: call the function of the row of kernels/support.c that the current GPU runs.  kernel: the
 * family of the selector, with functions in its rows. */
enum ar_status selector_dispatch(const char *kernel, const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
