/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/capture_json.h"

#include <math.h>

#include "base/json.h"
#include "model/rope.h"

cJSON *capture_json(const struct capture_info *info, uint64_t tensor_bytes)
{
	cJSON *o = cJSON_CreateObject(), *layers;
	bool done = o && cJSON_AddStringToObject(o, "schema", "attnreplay-capture-info-1") &&
		    cJSON_AddStringToObject(o, "file", info->name) &&
		    cJSON_AddStringToObject(o, "container", info->container) &&
		    json_add(o, "model",
			     *info->model ? cJSON_CreateString(info->model) : cJSON_CreateNull());

	layers = done ? cJSON_AddArrayToObject(o, "layers") : NULL;
	done = layers;
	for (int i = 0; done && i < info->n_layers; i++)
		done = json_add(layers, NULL, cJSON_CreateNumber(info->layer[i]));
	if (done && cJSON_AddNumberToObject(o, "q_heads", info->q_heads) &&
	    cJSON_AddNumberToObject(o, "kv_heads", info->kv_heads) &&
	    cJSON_AddNumberToObject(o, "head_dim", info->head_dim) &&
	    cJSON_AddNumberToObject(o, "tokens", (double)info->n_tok) &&
	    cJSON_AddNumberToObject(o, "prompt_tokens", (double)info->n_prompt) &&
	    cJSON_AddBoolToObject(o, "rope_applied", info->rope_applied) &&
	    json_add_real(o, "rope_theta", info->rope.theta > 0 ? info->rope.theta : NAN) &&
	    json_add_real(o, "rope_llama3_factor",
			  info->rope.type == ROPE_LLAMA3 ? info->rope.factor : NAN) &&
	    json_add(o, "rope_scaling",
		     rope_is_scaled(&info->rope) ? rope_scaling_json(&info->rope) :
						   cJSON_CreateNull()) &&
	    json_add_real(o, "frame_tokens", info->frame_tok ? (double)info->frame_tok : NAN) &&
	    json_add(o, "checksum",
		     *info->sha256 ? cJSON_CreateString(info->sha256) : cJSON_CreateNull()) &&
	    cJSON_AddNumberToObject(o, "tensor_bytes", (double)tensor_bytes) &&
	    cJSON_AddNumberToObject(o, "file_bytes", (double)info->file_bytes))
		return o;
	cJSON_Delete(o);
	return NULL;
}
