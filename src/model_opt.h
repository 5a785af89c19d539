/* SPDX-License-Identifier: Apache-2.0 */
/* The option --as-model, beside each --model. */
#ifndef AR_MODEL_OPT_H
#define AR_MODEL_OPT_H

/* A row of a table of options; at: offset of a char *. */
#define AS_MODEL_OPT(at, ...) \
	{ \
		.name = "as-model", .type = OPT_STR, .off = (at), .arg = "TYPE", \
		.help = "read the config.json as one of this model_type, such as llama, whatever " \
			"it says", \
		__VA_ARGS__ \
	}

#endif
