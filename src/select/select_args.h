/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the options of 'attnreplay select'. */
#ifndef AR_SELECT_ARGS_H
#define AR_SELECT_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

struct select_args {
	struct opt_list captures, selectors;
	char *model, *as_model, *methods, *layers, *json, *csv, *svg;
	int64_t tp, context, chunk, prompt, head;
	int backend, picture;
	bool scores;
};

#endif
