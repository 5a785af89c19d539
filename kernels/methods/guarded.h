/* SPDX-License-Identifier: Apache-2.0 */
/* References that are not of this program: their faults are found where they are made. */
#ifndef AR_GUARDED_H
#define AR_GUARDED_H

#include "kernels/methods/method.h"

/* Call the reference of p's selector as method_choose_ref() does, but on copies of its arrays with
 * guard words around them.  Check its writes.  AR_DATA: it wrote outside of its arrays or to the
 * state of other pages; or attn.h does not allow a list.  Then x is as before. */
enum ar_status guarded_ref(const struct method_part *p, const struct attn_call *call,
			   struct method_selection *x, struct ar_err *err);

#endif
