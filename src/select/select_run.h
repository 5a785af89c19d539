/* SPDX-License-Identifier: Apache-2.0 */
/* 'attnreplay select': methods on one chunk of each capture. */
#ifndef AR_SELECT_RUN_H
#define AR_SELECT_RUN_H

#include "base/status.h"
#include "src/select/select_args.h"

extern const char *const select_backends[]; /* names by select_args.backend, ended by NULL */

/* Run the methods of a on one chunk of each capture, and write the selections. */
enum ar_status select_run(const struct select_args *a, struct ar_err *err);

#endif
