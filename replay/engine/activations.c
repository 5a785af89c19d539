/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/activations.h"

#include "replay/engine/act_capture.h"
#include "replay/engine/act_weights.h"

const struct activations *const activations[] = { &activations_capture, &activations_weights,
						  NULL };

const struct activations *activations_of(const struct backend_env *env)
{
	return env->weights ? &activations_weights : &activations_capture;
}
