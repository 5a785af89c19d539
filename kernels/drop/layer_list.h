/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a dropper: "7+11+15", or with a value each, "10:0.5+20:0.25". */
#ifndef AR_LAYER_LIST_H
#define AR_LAYER_LIST_H

#include <stdbool.h>

#include "base/status.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LAYER_LIST_MAX = 256 };

struct layer_list {
	int n;
	int layer[LAYER_LIST_MAX]; /* ascending */
	double value[LAYER_LIST_MAX];
};

/* most: the largest value, the smallest is 0; most 0: there are no values.  AR_USAGE: malformed,
 * not ascending, or too many. */
enum ar_status layer_list_parse(struct layer_list *l, const char *text, double most,
				struct ar_err *err);

/* The same for model m.  AR_USAGE, too: a layer that m lacks, or that is not of full attention. */
enum ar_status layer_list_read(struct layer_list *l, const char *text, double most,
			       const struct model *m, struct ar_err *err);

/* The same, where text may be NULL: then def, the list for a model of 32 layers.  value: name of a
 * value in the message.  AR_USAGE, too: there is no text, and m has more or fewer layers. */
enum ar_status layer_list_read_or(struct layer_list *l, const char *text, const char *def,
				  const char *value, double most, const struct model *m,
				  struct ar_err *err);

/* The place of a layer in the list; -1: it is not there. */
int layer_list_find(const struct layer_list *l, int layer);

#ifdef __cplusplus
}
#endif

#endif
