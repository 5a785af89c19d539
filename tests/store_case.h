/* SPDX-License-Identifier: Apache-2.0 */
/* Databases in a temporary folder, and the runs that tests write into them. */
#ifndef AR_TESTS_STORE_CASE_H
#define AR_TESTS_STORE_CASE_H

#include "tests/sample_db.h"

#define CASE_OPTIONS "{\"method\": \"dense\", \"max-num-seqs\": 256, \"rate\": 0.5, \"tile\": true}"

extern const struct sample_run case_dense, case_sparse;

/* Make and remove the folder.  in_dir: the path of a file in it; four paths are kept. */
void case_begin(void);
void case_end(void);
const char *in_dir(const char *name);

/* These bail out where they fail. */
struct store *open_store(const char *path);
int64_t write_run(struct store *s, const struct sample_run *r);

#endif
