/* SPDX-License-Identifier: Apache-2.0 */
/* The table of 'attnreplay methods --support'. */
#ifndef AR_METHODS_SUPPORT_H
#define AR_METHODS_SUPPORT_H

#include <stdint.h>

#include "base/status.h"

/* Requirements on the kernels. */
struct methods_ask {
	const char *method; /* the kernels of this method and of decode; NULL: all */
	int64_t head_dim;   /* 0: 128 */
	int64_t page_tok;   /* 0: the method's, or 128 */
	const char *cc;	    /* "9.0"; NULL: of the current GPU, or of any without one */
};

/* Print the values that each family of kernels supports, and the requirement that it lacks.  Write
 * them as JSON to the file json, too; see json_file.h. */
enum ar_status methods_support(const struct methods_ask *ask, const char *json, struct ar_err *err);

#endif
