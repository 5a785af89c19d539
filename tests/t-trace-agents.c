/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of agents: rollouts, rounds of TraceLab and spans of OpenTelemetry. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/trace_text.h"
#include "traces/importers/import.h"

/* The text of files stands here line by line. */
/* clang-format off */

#define IS(id, ns, in, out, session, turn, more) \
	"{\"id\":" #id ",\"arrival_ns\":" #ns ",\"prompt_tokens\":" #in ",\"output_tokens\":" \
	#out ",\"session\":\"" session "\",\"turn\":" #turn more "}\n"

struct bad {
	const char *text, *message;
};

static void all_refused(const struct bad *bad, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		refused(bad[i].text, &whole, AR_DATA, bad[i].message, what);
}

/* ---- rollouts ---- */

#define RO(group, stream, prompt, out, obs, more) \
	"{\"group\":" #group ",\"stream\":" #stream ",\"prompt_len\":" #prompt \
	",\"out_lens\":" out ",\"obs_lens\":" obs more "}\n"

static const char rollouts[] =
	RO(3, 0, 40, "[5,0,1]", "[3,32,9]", ",\"tool_times\":[1.5,0.25]")
	RO(3, 1, 33, "[2,2]", "[14]", "")
	RO(4, 0, 16, "[1]", "[0]", "");

static void test_rollout(void)
{
	static const struct bad bad[] = {
		{ RO(1, 1, 9, "[1]", "[1]", "") RO(1, 1, 9, "[1]", "[1]", ""),
		  ":2: stream 1 of group 1 is in the file twice" },
		{ RO("a", 1, 9, "[1]", "[1]", ""),
		  ":1: group is \"\"a\"\", want an integer from 0 to 2147483647" },
		{ RO(1, -1, 9, "[1]", "[1]", ""),
		  ":1: stream is \"-1\", want an integer from 0 to 2147483647" },
		{ RO(1, 1, 0, "[1]", "[1]", ""), ":1: prompt_len is 0, want tokens" },
		{ RO(1, 1, 9, "3", "[1]", ""), ":1: out_lens is \"3\", want an array" },
		{ RO(1, 1, 9, "[1,2,3]", "[1]", ""),
		  ":1: obs_lens has 1 numbers, want 3 as out_lens, or one less" },
		{ RO(1, 1, 9, "[1]", "[]", ",\"tool_times\":[1,2]"),
		  ":1: tool_times has 2 numbers, want 1 as out_lens, or one less" },
		{ RO(1, 1, 9, "[-1]", "[]", ""),
		  ":1: out_lens has \"-1\", want integers from 0 to 2147483647" },
		{ RO(1, 1, 9, "[1,1]", "[0.5]", ""),
		  ":1: obs_lens has \"0.5\", want integers from 0 to 2147483647" },
		{ RO(1, 1, 9, "[1,1]", "[2147483647]", ""),
		  ":1: the prompts grow beyond 2147483647 tokens" },
		{ RO(1, 1, 9, "[1,1]", "[1]", ",\"tool_times\":[-1]"),
		  ":1: tool_times is \"-1\", want a time that is a number from 0 on" },
		{ RO(1, 1, 9, "[1,1,1]", "[1,1]", ",\"tool_times\":[9e9,9e9]"),
		  ":1: the time goes beyond 2^63 ns" },
		{ RO(1, 1, 9, "[]", "[]", ""), ": no requests in the file" },
	};

	becomes(rollouts, &whole, "rollout",
		IS(0, 0, 40, 5, "3/0", 0, ",\"blocks\":[0,1,2]")
		IS(1, 0, 33, 2, "3/1", 0, ",\"blocks\":[0,1,6]")
		IS(2, 0, 49, 2, "3/1", 1, ",\"think_ns\":0,\"blocks\":[0,1,7,8]")
		IS(3, 0, 16, 1, "4/0", 0, ",\"blocks\":[9]")
		IS(4, 1500000000, 48, 1, "3/0", 1, ",\"think_ns\":1500000000,\"blocks\":[0,1,3]")
		IS(5, 1750000000, 80, 1, "3/0", 2,
		   ",\"think_ns\":250000000,\"blocks\":[0,1,3,4,5]"),
		"rollout: prompts grow, and streams of a group begin with the same one");
	survive(rollouts, strlen(rollouts), &whole, "rollout");
	all_refused(bad, sizeof bad / sizeof *bad, "rollout: refused");
}

/* ---- TraceLab ---- */

#define EV(type, s) "{\"event_type\":\"" type "\",\"timestamp\":\"2026-06-01T05:00:" s "Z\"}"
#define TL(session, in, out, more, events) \
	"{\"session_id\":\"" session "\",\"input_tokens_total\":" #in ",\"output_tokens\":" #out \
	more ",\"timing_events\":[" events "]}\n"
#define HIT(prefix, fresh) ",\"prefix_tokens\":" #prefix ",\"newly_append_tokens\":" #fresh

/* The second round is longer, the third is shorter and was held in part, the last two overlap. */
static const char steps[] =
	TL("b", 40, 3, ",\"model\":\"m\"" HIT(16, 24),
	   EV("user_message", "01.5") "," EV("reasoning", "02") "," EV("text", "04"))
	TL("b", 64, 0, HIT(16, 48),
	   EV("tool_result", "04") "," EV("tool_result", "05") "," EV("tool_call", "07") ","
	   EV("tool_result", "08") "," EV("tool_call", "07.5"))
	TL("b", 48, 2, HIT(32, 16), EV("user_message", "10") "," EV("usage_report", "12"))
	TL("b", 0, 2, "", EV("text", "13"))
	TL("b", 9, 2, "", "")
	TL("b", 33, 1, HIT(16, 17), EV("user_message", "13"))
	TL("a", 20, 5, "", EV("text", "01") "," EV("text", "03"))
	TL("a", 20, 5, "", EV("user_message", "02.5") "," EV("text", "02"));

static void test_tracelab(void)
{
	static const struct bad bad[] = {
		{ TL("a", 9, 1, HIT(3, 5), EV("text", "01")),
		  ":1: input_tokens_total is 9, but prefix_tokens and newly_append_tokens are 3 "
		  "and 5" },
		{ TL("a", 9, 1, HIT(x, 5), EV("text", "01")),
		  ":1: not a JSON object (near "
		  "\"x,\"newly_append_tokens\":5,\"timing_events...\")" },
		{ TL("a", 9, 1, HIT(9, -1), EV("text", "01")),
		  ":1: newly_append_tokens is \"-1\", want an integer from 0 to 2147483647" },
		{ TL("a", 9, 1, ",\"model\":3", EV("text", "01")),
		  ":1: model is \"3\", want a string" },
		{ TL("a", 9, 1, "", EV("text", "61")),
		  ":1: timestamp is \"2026-06-01T05:00:61Z\", want a date and time such as "
		  "2023-11-16 18:15:46.68" },
		{ TL("a", 9, 1, "", "{\"event_type\":\"text\"}"),
		  ":1: an event of timing_events lacks \"timestamp\"" },
		{ TL("a", 9, 1, "", "3"), ":1: timing_events has \"3\", want objects" },
		{ "{\"session_id\":\"a\",\"input_tokens_total\":1,\"output_tokens\":1,"
		  "\"timing_events\":3}\n", ":1: timing_events is \"3\", want an array" },
		{ TL("a", 9, 1, "", ""), ": no requests in the file" },
	};

	becomes(steps, &whole, "tracelab",
		IS(0, 0, 20, 5, "a", 0, ",\"blocks\":[8,9]")
		IS(1, 500000000, 40, 3, "b", 0, ",\"blocks\":[0,1,2],\"label\":\"m\"")
		IS(2, 1500000000, 20, 5, "a~2", 0, ",\"blocks\":[10,11]")
		IS(3, 4000000000, 64, 1, "b", 1,
		   ",\"think_ns\":1000000000,\"blocks\":[0,1,3,4]")
		IS(4, 9000000000, 48, 2, "b", 2, ",\"think_ns\":2500000000,\"blocks\":[0,1,5]")
		IS(5, 12000000000, 33, 1, "b", 3,
		   ",\"think_ns\":1000000000,\"blocks\":[0,6,7]"),
		"tracelab: rounds by time, think times, and what prompts share");
	survive(steps, strlen(steps), &whole, "tracelab");
	all_refused(bad, sizeof bad / sizeof *bad, "tracelab: refused");
}

/* Rounds of the trace itself: see tests/data/README.md. */
static void test_real_rounds(void)
{
	const char *srcdir = getenv("srcdir");
	struct ar_err err = { 0 };
	struct trace *t;
	char name[300];

	snprintf(name, sizeof name, "%s/tests/data/corpus/trace/tracelab.jsonl",
		 srcdir ? srcdir : ".");
	if (trace_read(&t, name, &whole, &err))
		bail_out("%s", err.msg);
	is_int((long long)t->n, 4, "tracelab: four real rounds");
	ok(t->req[1].think_ns == 6333000000 && t->req[1].prompt_tok == 10436 &&
		   trace_block(t, &t->req[1], 575) == trace_block(t, &t->req[0], 575) &&
		   trace_block(t, &t->req[1], 576) != trace_block(t, &t->req[0], 576),
	   "... a shorter prompt shares the 9216 tokens that a cache held");
	ok(t->req[3].think_ns == 145000000 &&
		   trace_block(t, &t->req[3], 2569) == trace_block(t, &t->req[2], 2569),
	   "... a longer one shares all of the one before it");
	trace_free(t);
}

/* ---- OpenTelemetry ---- */

#define AT(key, type, value) "{\"key\":\"" key "\",\"value\":{\"" type "Value\":" value "}}"
#define CHAT AT("gen_ai.operation.name", "string", "\"chat\"")
#define USED(in, out) \
	"," AT("gen_ai.usage.input_tokens", "int", "\"" #in "\"") "," \
	AT("gen_ai.usage.output_tokens", "int", "\"" #out "\"")
#define HELD(n) "," AT("gen_ai.usage.cache_read.input_tokens", "int", #n)
#define TALK(id) "," AT("gen_ai.conversation.id", "string", "\"" id "\"")
#define SPAN(trace, from, to, attributes, more) \
	"{\"traceId\":\"" trace "\",\"startTimeUnixNano\":\"" #from "\"," \
	"\"endTimeUnixNano\":\"" #to \
	"\",\"attributes\":[" attributes "]" more "}"
#define OTLP(spans) \
	"{\"resourceSpans\":[{\"resource\":{}},{\"scopeSpans\":[{\"spans\":[" spans "]}]}]}\n"
#define FLAT(from, to, attributes, more) \
	"{\"trace_id\":\"t\",\"start_time\":\"2026-02-25T10:00:" from "\",\"end_time\":" \
	"\"2026-02-25T10:00:" to "\",\"attributes\":{" attributes "}" more "}"

/* Spans are written as they end.  Those of a conversation grow; others share what a cache held. */
static const char spans[] =
	OTLP(SPAN("t", 1500, 1600, CHAT USED(48, 2) HELD(16) TALK("c"), "") ","
	     SPAN("t", 1550, 1650, CHAT USED(20, 0) TALK("c"), ""))
	OTLP(SPAN("t", 1000, 1400, CHAT USED(40, 2) TALK("c") ","
		  AT("gen_ai.request.model", "string", "\"m\""), ",\"status\":{\"code\":1}") ","
	     SPAN("t", 1400, 1500, AT("gen_ai.operation.name", "string", "\"execute_tool\""), ""))
	OTLP(SPAN("t", 1000, 1100, CHAT USED(40, 1), "") ","
	     SPAN("t", 1200, 1300, "{\"key\":3}" USED(40, 1) HELD(16), "") ","
	     SPAN("t", 1300, 1400, CHAT USED(40, 1), ",\"status\":{\"code\":2}") ","
	     SPAN("t", 1400, 1500, CHAT USED(0, 1), "") ","
	     SPAN("t", 900, 1700, AT("http.method", "string", "\"POST\""), ""));

static void test_otel(void)
{
	static const struct bad bad[] = {
		{ OTLP(SPAN("t", 1, 2, CHAT, "")),
		  ":1: a span of a request lacks \"gen_ai.usage.input_tokens\"; its texts have no "
		  "token counts" },
		{ OTLP(SPAN("t", 1, 2, CHAT "," AT("gen_ai.usage.input_tokens", "int", "1"), "")),
		  ":1: a span of a request lacks \"gen_ai.usage.output_tokens\"; its texts have no "
		  "token counts" },
		{ OTLP(SPAN("t", 1, 2, CHAT USED(-1, 2), "")),
		  ":1: gen_ai.usage.input_tokens is \"-1\", want an integer from 0 to "
		  "2147483647" },
		{ OTLP(SPAN("t", 1, 2, CHAT USED(1, 2) HELD(x), "")),
		  ":1: not a JSON object (near \"x}}]}]}]}]}\")" },
		{ OTLP(SPAN("t", 1, 2, CHAT USED(1, 2) HELD(1.5), "")),
		  ":1: gen_ai.usage.cache_read.input_tokens is \"1.5\", want an integer from 0 to "
		  "2147483647" },
		{ OTLP(SPAN("t", x, 2, CHAT USED(1, 2), "")),
		  ":1: startTimeUnixNano is \"x\", want nanoseconds since 1970" },
		{ OTLP(SPAN("t", 1, 9223372036854775808, CHAT USED(1, 2), "")),
		  ":1: endTimeUnixNano is \"9223372036854775808\", want nanoseconds since 1970" },
		{ OTLP(SPAN("t", 2, 1, CHAT USED(1, 2), "")),
		  ":1: a span of a request ends before it starts" },
		{ OTLP("{\"attributes\":[" CHAT USED(1, 2) "]}"),
		  ":1: a span of a request lacks its start" },
		{ OTLP("{\"startTimeUnixNano\":\"1\",\"attributes\":[" CHAT USED(1, 2) "]}"),
		  ":1: a span of a request lacks its end" },
		{ OTLP("{\"startTimeUnixNano\":\"1\",\"endTimeUnixNano\":\"1\",\"attributes\":["
		       CHAT USED(1, 2) "]}"),
		  ":1: a span of a request lacks \"traceId\"" },
		{ OTLP(SPAN("t", 1, 2, CHAT USED(1, 2) ","
			    AT("gen_ai.conversation.id", "int", "3"), "")),
		  ":1: gen_ai.conversation.id is \"3\", want a string" },
		{ OTLP(SPAN("t", 1, 2, CHAT USED(1, 2) ","
			    AT("gen_ai.request.model", "int", "3"), "")),
		  ":1: gen_ai.request.model is \"3\", want a string" },
		{ OTLP("3"), ":1: spans has \"3\", want objects" },
		{ "{\"resourceSpans\":3}\n", ":1: resourceSpans is \"3\", want an array" },
		{ "{\"resourceSpans\":[{\"scopeSpans\":3}]}\n",
		  ":1: scopeSpans is \"3\", want an array" },
		{ OTLP(""), ": no requests in the file" },
		{ "{\"spans\":[" FLAT("1", "2", "\"gen_ai.usage.input_tokens\":1,"
				      "\"gen_ai.usage.output_tokens\":1", "") "]}\n",
		  ":1: start_time is \"2026-02-25T10:00:1\", want a date and time such as "
		  "2023-11-16 18:15:46.68" },
	};

	becomes(spans, &whole, "otel",
		IS(0, 0, 40, 2, "c", 0, ",\"blocks\":[0,1,2],\"label\":\"m\"")
		IS(1, 0, 40, 1, "t", 0, ",\"blocks\":[6,7,8]")
		IS(2, 200, 40, 1, "t", 1, ",\"think_ns\":100,\"blocks\":[6,9,10]")
		IS(3, 500, 48, 2, "c", 1, ",\"think_ns\":100,\"blocks\":[0,1,3]")
		IS(4, 550, 20, 1, "c~2", 0, ",\"blocks\":[4,5]"),
		"otel: spans of requests by conversation and time");
	becomes("{\n\"trace_id\":\"t\",\n\"spans\":["
		FLAT("00", "02", "\"gen_ai.operation.name\":\"chat\","
		     "\"gen_ai.conversation.id\":null,\"gen_ai.usage.prompt_tokens\":32,"
		     "\"gen_ai.usage.completion_tokens\":4",
		     ",\"status\":{\"code\":\"STATUS_CODE_OK\"}")
		"," FLAT("03", "04", "\"gen_ai.usage.input_tokens\":48,"
			 "\"gen_ai.usage.output_tokens\":4", "")
		"," FLAT("04", "05", "\"gen_ai.usage.input_tokens\":48",
			 ",\"status\":{\"code\":\"STATUS_CODE_ERROR\"}") ","
		"{\"name\":\"tool\",\"attributes\":3},{}]}\n",
		&whole, "otel-flat",
		IS(0, 0, 32, 4, "t", 0, ",\"blocks\":[0,1]")
		IS(1, 3000000000, 48, 4, "t", 1, ",\"think_ns\":1000000000,\"blocks\":[2,3,4]"),
		"otel-flat: attributes that are an object");
	survive(spans, strlen(spans), &whole, "otel");
	all_refused(bad, sizeof bad / sizeof *bad, "otel: refused");
}

int main(void)
{
	text_begin();
	plan(0);
	test_rollout();
	test_tracelab();
	test_real_rounds();
	test_otel();
	text_end();
	return done_testing();
}
