/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/activations.h"

#include "replay/engine/act_capture.h"

const struct activations *const activations[] = { &activations_capture, NULL };
