/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a config.json that no reader asked for: named, passed over, or refused. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "tests/a_model.h"
#include "tests/tap.h"

#define BASE \
	"\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":100," \
	"\"num_attention_heads\":4"

static void test_unread(void)
{
	static const struct {
		const char *text, *unread;
	} cases[] = {
		{ "{" BASE "}", "" },
		{ "{" BASE ",\"head_dim\":16,\"rope_theta\":1e4,\"rope_scaling\":null}", "" },
		{ "{" BASE ",\"lanes\":2}", "lanes" },
		{ "{" BASE ",\"lanes\":2,\"depth_scale\":0.5,\"shape\":[1]}",
		  "lanes, depth_scale, shape" },
		/* nothing is turned on */
		{ "{" BASE ",\"a\":0,\"b\":false,\"c\":null,\"d\":\"\",\"e\":[],\"f\":{}}", "" },
		{ "{" BASE ",\"a\":1,\"b\":true,\"d\":\"x\",\"e\":[0],\"f\":{\"g\":0}}",
		  "a, b, d, e, f" },
		/* nothing of what is replayed changes */
		{ "{" BASE ",\"bos_token_id\":1,\"attention_dropout\":0.1,\"use_cache\":true,"
		  "\"_name_or_path\":\"x\",\"embedding_initializer_range\":0.1,"
		  "\"vision_config\":{\"x\":1},\"transformers_version\":\"5\"}",
		  "" },
		{ "{" BASE ",\"sliding_window\":8,\"use_sliding_window\":false,"
		  "\"max_window_layers\":1}",
		  "" },
		/* of both objects */
		{ "{\"text_config\":{" BASE ",\"lanes\":2},\"bridge\":1,\"bos_token_id\":1}",
		  "bridge, lanes" },
		/* a default that the file does not state */
		{ "{\"model_type\":\"gpt_oss\"," BASE ",\"sliding_window\":8,"
		  "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
		  "" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = a_model_of(cases[i].text);

		is_str(m.unread, cases[i].unread, "%s", cases[i].text);
		model_release(&m);
	}
}

static void test_many(void)
{
	char text[4096] = "{" BASE;
	struct model m;
	size_t n;

	for (int i = 0; i < 40; i++)
		sprintf(text + strlen(text), ",\"a_long_name_of_key_%d\":1", i);
	strcat(text, "}");
	m = a_model_of(text);
	n = strlen(m.unread);
	ok(n < sizeof m.unread && n > 100 && !strncmp(m.unread, "a_long_name_of_key_0, a_", 24) &&
		   !strcmp(strstr(m.unread, " and"), " and 32 more"),
	   "40 keys are named or counted: %s", m.unread);
	model_release(&m);
	memset(text, 0, sizeof text);
	strcpy(text, "{" BASE ",\"");
	memset(text + strlen(text), 'x', 1000);
	strcat(text, "\":1}");
	m = a_model_of(text);
	is_str(m.unread, "1 more", "a name longer than the room is counted");
	model_release(&m);
}

static void test_strange(void)
{
	static const char *const keys[] = {
		"\"attn_logit_softcapping\":50.0",
		"\"block_configs\":[{}]",
		"\"compress_ratios\":[4]",
		"\"hidden_size_per_layer_input\":256",
		"\"hybrid_override_pattern\":\"M*\"",
		"\"index_topk\":2048",
		"\"kv_lora_rank\":512",
		"\"linear_attn_config\":{\"x\":1}",
		"\"num_kv_shared_layers\":2",
		"\"q_lora_rank\":512",
		"\"sparse_attention_config\":{\"x\":1}",
		"\"ssm_state_size\":128",
	};
	struct ar_err err = { 0 };
	char text[512], want[128];
	struct model m;

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		snprintf(text, sizeof text, "{" BASE ",%s}", keys[i]);
		snprintf(want, sizeof want, "c.json: key '%.*s' says that ",
			 (int)strcspn(keys[i] + 1, "\""), keys[i] + 1);
		ok(model_parse(&m, "c.json", text, &err) == AR_DATA && !m.json && !m.layer &&
			   !strncmp(err.msg, want, strlen(want)),
		   "refused: %s", err.msg);
	}
	m = a_model_of("{" BASE ",\"kv_lora_rank\":null,\"num_kv_shared_layers\":0}");
	is_str(m.unread, "", "but not if they are null or 0");
	model_release(&m);
}

int main(void)
{
	plan(0);
	test_unread();
	test_many();
	test_strange();
	return done_testing();
}
