/* SPDX-License-Identifier: Apache-2.0 */
/* --engine-args: the command line of a real engine, 'vllm serve MODEL ...' or 'python -m
 * sglang.launch_server ...', as people have it.  Options get what it says, where our own command
 * line and job file do not. */
#ifndef AR_ENGINE_ARGS_H
#define AR_ENGINE_ARGS_H

#include "base/status.h"

struct run_options;

/* Set the options, and o->engine_left: flags that it leaves out, "--port 8000, --seed 1", or "".
 * AR_USAGE: the text is no such command line, or a value is malformed; the message has the word. */
enum ar_status run_engine_args(struct run_options *o, struct ar_err *err);

#endif
