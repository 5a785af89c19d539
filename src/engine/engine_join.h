/* SPDX-License-Identifier: Apache-2.0 */
/* What clients saw of an engine, joined with the steps that the engine logged. */
#ifndef AR_ENGINE_JOIN_H
#define AR_ENGINE_JOIN_H

#include "base/status.h"
#include "traces/engine/engine_log.h"

/*
 * Give the log of steps the requests of the log of clients, and its name.
 *
 * A log of clients need not have the engine's names of requests, but both have their lengths.  So
 * of those with a prompt and an output of some lengths, the last to arrive at the engine are those
 * that clients sent, in the same order: before them it may have run others, to warm up.
 * Clocks may differ: steps are moved so that the fastest request takes no time to the engine.
 * Steps of other requests alone are left out.
 *
 * client: gets the requests and the name that steps had.  AR_DATA: a client's request is not among
 * those of the engine; or a time or a name is missing.
 */
enum ar_status engine_join(struct engine_log *steps, struct engine_log *client, struct ar_err *err);

#endif
