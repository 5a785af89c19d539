/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of 'attnreplay capture info' for programs. */
#ifndef AR_CAPTURE_JSON_H
#define AR_CAPTURE_JSON_H

#include <cjson/cJSON.h>

#include "traces/capture/capture.h"

/* Make the JSON document of a capture, with the bytes of its tensors.  The caller owns it.  NULL:
 * no memory. */
cJSON *capture_json(const struct capture_info *info, uint64_t tensor_bytes);

#endif
