/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights of a model are quantized, and how its KV cache is: by quantization_config of
 * config.json, by hf_quant_config.json beside it, or as an option says. */
#ifndef AR_QUANT_H
#define AR_QUANT_H

#include <stddef.h>

#include "base/status.h"
#include "model/model.h"

/* If the file path is a config.json without quantization_config, and hf_quant_config.json is beside
 * it, give *json the content of that file as quantization_config.  The names may have a common text
 * in front.  *json is owned by the caller, also after a failure. */
enum ar_status quant_beside(char **json, const char *path, struct ar_err *err);

/* The quant_method of the formats that the text of a config.json has; "": it has none, or cannot be
 * read.  buf: of n bytes. */
enum ar_status quant_method(char *buf, size_t n, const char *json, struct ar_err *err);

/* Set the formats of the weights and the KV cache of m, which is not split.
 *
 * weights NULL or "auto": as its config says; "none": bf16; else a name such as "fp8_per_block",
 * for a config without formats.  kv NULL or "auto": as its config says, bf16 with "none"; else a
 * dtype of vLLM, such as "fp8".  AR_DATA: a format of the config is not known; the message names
 * key and value.  AR_USAGE: the name is not known, or the config has formats of its own. */
enum ar_status model_set_formats(struct model *m, const char *weights, const char *kv,
				 struct ar_err *err);

/* Set the KV cache of some layers back to bf16.  list: as "0,4-6,sliding_window"; the word is for
 * all that have a window.  AR_USAGE: it is no such list, names a layer that m has not, or has no
 * effect, as the KV cache of these layers is in bf16. */
enum ar_status model_skip_kv(struct model *m, const char *list, struct ar_err *err);

/* The formats of weights but for bf16, as in "fp8-tensor+nvfp4"; "": all are bf16.  The names of
 * the KV cache's layouts, as in "kv-bf16+kv-e4m3"; "": all are bf16.  Returns buf. */
const char *model_weights_text(const struct model *m, char *buf, size_t n);
const char *model_kv_text(const struct model *m, char *buf, size_t n);

/* AR_USAGE: weights or the KV cache of m are in a format that no kernel takes.  The message names
 * it. */
enum ar_status model_check_formats(const struct model *m, struct ar_err *err);

/* AR_USAGE: one of tp ranks would have part of a block or a group of scales.  The message names the
 * ranks that would not.  part: a layer's share. */
enum ar_status quant_check_split(const struct model *m, const struct layer_spec *l,
				 const struct layer_spec *part, struct ar_err *err);

#endif
