/* SPDX-License-Identifier: Apache-2.0 */
/* Evictors: spellings, parameters, and how many tokens stay. */
#include "config.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/evict/evictor.h"
#include "tests/tap.h"

static struct evict *parsed(const char *text)
{
	struct ar_err err;
	struct evict *e;

	if (evict_parse(&e, text, &err))
		bail_out("%s", err.msg);
	return e;
}

static void test_refused(void)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ "nothing", "unknown name: want one that 'attnreplay methods' lists" },
		{ "streaming:recent=0", "recent '0': want an integer from 1 to 16777216" },
		{ "snapkv:kernel=4", "kernel=4: want an odd number" },
		{ "snapkv:budget=32",
		  "budget=32: 32 tokens stay in any case; want a larger budget" },
		{ "snapkv:budget=100,variant=frontier",
		  "budget=100: 132 tokens stay in any case; want a larger budget" },
		{ "snapkv:softmax=prefix,local=8",
		  "softmax=prefix: the window has no scores then; leave out local" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct evict *e = (struct evict *)1;
		struct ar_err err = { 0 };
		char want[512];

		snprintf(want, sizeof want, "evictor '%s': %s", bad[i].text, bad[i].message);
		is_int(evict_parse(&e, bad[i].text, &err), AR_USAGE, "'%s' is refused",
		       bad[i].text);
		is_str(err.msg, want, "which the message explains");
		ok(!e, "and nothing is made");
	}
}

static void is_record(const char *text, const char *want)
{
	struct evict *e = parsed(text);
	cJSON *o = evict_json(e);
	char *json = cJSON_PrintUnformatted(o);

	is_str(json, want, "'%s' has its record", text);
	cJSON_free(json);
	cJSON_Delete(o);
	evict_free(e);
}

static void test_records(void)
{
	is_record("snapkv",
		  "{\"name\":\"snapkv\",\"variant\":\"snapkv\",\"budget\":2048,\"window\":32,"
		  "\"window-rule\":\"ring\",\"pool\":\"avg\",\"kernel\":5,\"group\":\"after\","
		  "\"softmax\":\"all\",\"sink\":0,\"local\":0}");
	is_record("snapkv,variant=trtllm,kernel=7",
		  "{\"name\":\"snapkv\",\"variant\":\"trtllm\",\"budget\":2048,\"window\":32,"
		  "\"window-rule\":\"ring\",\"pool\":\"max\",\"kernel\":7,\"group\":\"before\","
		  "\"softmax\":\"prefix\",\"sink\":0,\"local\":0}");
	is_record("h2o:heavy=3,norm=1",
		  "{\"name\":\"h2o\",\"heavy\":3,\"recent\":512,\"norm\":true}");
	is_record("streaming", "{\"name\":\"streaming\",\"sink\":4,\"recent\":1024}");
}

static void test_kept(void)
{
	for (int i = 0; evictors[i]; i++) {
		struct evict *e = parsed(evictors[i]->name);
		int64_t most = evict_kept(e, INT64_MAX);

		is_int(evict_kept(e, 1), 1, "%s: a token stays", evictors[i]->name);
		is_int(evict_kept(e, most), most, "%s: all that fit stay", evictors[i]->name);
		is_int(evict_kept(e, most + 1), most, "%s: no more do", evictors[i]->name);
		is_int(evict_bound(e), e->evictor->decodes ? most + 1 : INT64_MAX,
		       "%s: how many tokens a decode may add", evictors[i]->name);
		evict_free(e);
	}
}

int main(void)
{
	test_refused();
	test_records();
	test_kept();
	return done_testing();
}
