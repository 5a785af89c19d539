/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are read and counted, but that no backend runs. */
#ifndef AR_LAYER_GAP_H
#define AR_LAYER_GAP_H

#include "base/status.h"
#include "model/model.h"

/* Return the trait of the layer that backends cpu and cuda, weights and captures lack, such as
 * "values of another size than keys".  NULL: they can run it. */
const char *layer_gap(const struct layer_spec *l);

/* AR_USAGE: a layer of m has a gap.  The message names model, layer and trait. */
enum ar_status model_check_gap(const struct model *m, struct ar_err *err);

#endif
