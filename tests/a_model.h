/* SPDX-License-Identifier: Apache-2.0 */
/* Models of a test, which ends if one cannot be read.  The caller releases them. */
#ifndef AR_TESTS_A_MODEL_H
#define AR_TESTS_A_MODEL_H

#include "model/model.h"
#include "tests/tap.h"

/* name: a preset or a path. */
static inline struct model a_model(const char *name)
{
	struct ar_err err = { 0 };
	struct model m;

	if (model_load(&m, name, &err))
		bail_out("%s", err.msg);
	return m;
}

/* json: the text of a config.json, whose name is c.json. */
static inline struct model a_model_of(const char *json)
{
	struct ar_err err = { 0 };
	struct model m;

	if (model_parse(&m, "c.json", json, &err))
		bail_out("%s: %s", json, err.msg);
	return m;
}

#endif
