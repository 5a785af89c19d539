/* SPDX-License-Identifier: Apache-2.0 */
/* Trace formats: worked records of each format, effects of options, and recognition. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/rng.h"
#include "tests/trace_text.h"
#include "traces/importers/import.h"

/* The text of files stands here line by line. */
/* clang-format off */

#define REQ(id, ns, in, out) \
	"{\"id\":" #id ",\"arrival_ns\":" #ns ",\"prompt_tokens\":" #in ",\"output_tokens\":" #out

static void test_azure_lmm(void)
{
	static const char text[] = LMM "2024-10-15T12:00:00.269Z,0,770,491\n"
				       "2024-10-15T12:00:05.819Z,16,949,126\n";
	struct trace_args a = { .in.image_tok = 100 };

	becomes(text, &whole, "azure-lmm",
		REQ(0, 0, 770, 491) "}\n" REQ(1, 5550000000, 949, 126) ",\"images\":16}\n",
		"azure-lmm: images are counted");
	becomes(text, &a, "azure-lmm",
		REQ(0, 0, 770, 491) "}\n" REQ(1, 5550000000, 2549, 126) ",\"images\":16}\n",
		"azure-lmm: tokens for each image");
	refused(LMM "2024-10-15T12:00:00.269Z,2147483647,949,126\n", &a, AR_DATA,
		":2: 2147483647 images make a prompt of more than 2147483647 tokens",
		"azure-lmm: a prompt too long");
}

static void test_burstgpt(void)
{
	becomes(BU1 "5,ChatGPT,472,18,490,Conversation log\n"
		    "45,ChatGPT,1087,230,1,Conversation log\n"
		    "1106,ChatGPT,0,0,0,Conversation log\n"
		    "1106,GPT-4,7,0,7,API log\n"
		    "1107,GPT-4,7,1,8,API log\n",
		&whole, "burstgpt",
		REQ(0, 0, 472, 18) ",\"label\":\"ChatGPT\"}\n"
		REQ(1, 40000000000, 1087, 230) ",\"label\":\"ChatGPT\"}\n"
		REQ(2, 1102000000000, 7, 1) ",\"label\":\"GPT-4\"}\n",
		"burstgpt: failed requests are dropped, a wrong total is no harm");
	becomes(BU3 "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
		    "19440200.0,1722ac82,10,ChatGPT,300,20,320,Conversation log\n"
		    "19440205.0,1722ac82,0,ChatGPT,300,20,320,Conversation log\n"
		    "19454781.0,,21,GPT-4,264,171,435,API log\n",
		&whole, "burstgpt",
		REQ(0, 0, 906, 446) ",\"session\":\"1722ac82\",\"turn\":0,\"label\":\"GPT-4\"}\n"
		REQ(1, 90000000000, 300, 20) ",\"session\":\"1722ac82\",\"turn\":1,"
		"\"think_ns\":47000000000,\"label\":\"ChatGPT\"}\n"
		REQ(2, 95000000000, 300, 20) ",\"session\":\"1722ac82\",\"turn\":2,"
		"\"label\":\"ChatGPT\"}\n"
		REQ(3, 14671000000000, 264, 171) ",\"label\":\"GPT-4\"}\n",
		"burstgpt: sessions, with the pause after the answer when there is one");
	becomes("Response tokens,Timestamp,Request tokens\n18,5,472\n", &whole, "burstgpt",
		REQ(0, 0, 472, 18) "}\n", "burstgpt: three columns are enough, in any order");
	becomes("Response tokens,Timestamp,Request tokens,Session ID\n"
		"18,5,4,\\u0000\n1,7,2,\\u0000\n",
		&whole, "burstgpt",
		REQ(0, 0, 4, 18) ",\"session\":\"\\\\u0000\",\"turn\":0}\n"
		REQ(1, 2000000000, 2, 1) ",\"session\":\"\\\\u0000\",\"turn\":1}\n",
		"burstgpt: no pause without the time of the answer; names may look like escapes");
}

static void test_splitwise(void)
{
	becomes(SP "0,2,0,1,1,4096,32\n1,2,7,3.5,1,2048,8\n2,2,7,4,1,0,8\n", &whole, "splitwise",
		REQ(0, 0, 4096, 32) ",\"label\":\"0\"}\n"
		REQ(1, 2500000000, 2048, 8) ",\"label\":\"7\"}\n",
		"splitwise: seconds, applications");
}

static void test_vllm(void)
{
	static const char text[] =
		"{\"timestamp\":12.4,\"input_length\":42,\"output_length\":8,"
		"\"hash_ids\":[981,4412,7]}\n"
		"{\"timestamp\":12.5,\"input_length\":32,\"output_length\":1,"
		"\"hash_ids\":[981,4412]}\n"
		"{\"timestamp\":13,\"input_length\":20,\"output_length\":1,"
		"\"hash_ids\":[981,4412]}\n"
		"{\"timestamp\":13,\"input_length\":20,\"output_length\":0,"
		"\"hash_ids\":[981,4412]}\n"
		"{\"timestamp\":14,\"input_length\":20,\"output_length\":1}\n";
	char vllm[] = "vllm", mooncake[] = "mooncake";
	struct trace_args a = { .in.format = vllm },
			  b = { .in.format = mooncake,
				.in.hash_tok = 16,
				.in.time_unit = UNIT_MS };
	static const char bare[] = "{\"timestamp\":2,\"input_length\":42,\"output_length\":8}\n"
				   "{\"timestamp\":4,\"input_length\":42,\"output_length\":8}\n";

	becomes(text, &whole, "vllm",
		REQ(0, 0, 42, 8) ",\"blocks\":[0,1,2]}\n"
		REQ(1, 100000000, 32, 1) ",\"blocks\":[0,1]}\n"
		REQ(2, 600000000, 20, 1) ",\"blocks\":[0,3]}\n"
		REQ(3, 1600000000, 20, 1) "}\n",
		"vllm: seconds, a hash for 16 tokens");
	becomes(text, &b, "mooncake",
		REQ(0, 0, 42, 8) ",\"blocks\":[0,1,2]}\n"
		REQ(1, 100000, 32, 1) ",\"blocks\":[0,1]}\n"
		REQ(2, 600000, 20, 1) ",\"blocks\":[0,3]}\n"
		REQ(3, 1600000, 20, 1) "}\n",
		"vllm: as a Mooncake trace of short blocks its times are milliseconds");
	becomes(bare, &a, "vllm", REQ(0, 0, 42, 8) "}\n" REQ(1, 2000000000, 42, 8) "}\n",
		"vllm: without hashes when the format is named");
}

#define CHAT(id, parent, turn, time, ids)                                                          \
	"{\"chat_id\":" #id ",\"parent_chat_id\":" #parent ",\"timestamp\":" #time                 \
	",\"input_length\":20,\"output_length\":2,\"type\":\"text\",\"turn\":" #turn               \
	",\"hash_ids\":" ids "}\n"
#define CHAT_IS(id, ns, session, turn, ids)                                                        \
	REQ(id, ns, 20, 2) ",\"session\":\"" #session "\",\"turn\":" #turn ",\"blocks\":" ids     \
	",\"label\":\"text\"}\n"

static void test_bailian(void)
{
	becomes(CHAT(0, -1, 1, 61.114, "[7,8]") CHAT(3, -1, 1, 61.114, "[8,7]")
		CHAT(9, 0, 2, 62, "[7,9]") CHAT(10, 9, 3, 63, "[7,9]") CHAT(11, 0, 2, 64, "[8,8]")
		CHAT(12, 77, 4, 65, "[7,7]"),
		&whole, "bailian",
		CHAT_IS(0, 0, 0, 0, "[0,1]") CHAT_IS(1, 0, 3, 0, "[2,3]")
		CHAT_IS(2, 886000000, 0, 1, "[0,4]") CHAT_IS(3, 1886000000, 0, 2, "[0,4]")
		CHAT_IS(4, 2886000000, 0, 1, "[2,5]") CHAT_IS(5, 3886000000, 12, 3, "[0,6]"),
		"bailian: a chat goes on from its parent, the same hash elsewhere is another "
		"block");
	becomes("{\"chat_id\":0,\"parent_chat_id\":-1,\"timestamp\":0,\"input_length\":5,"
		"\"output_length\":0,\"turn\":1}\n"
		"{\"chat_id\":1,\"parent_chat_id\":0,\"timestamp\":1,\"input_length\":5,"
		"\"output_length\":1,\"turn\":3}\n",
		&whole, "bailian", REQ(0, 0, 5, 1) ",\"session\":\"0\",\"turn\":2}\n",
		"bailian: a failed request still begins its chat");
}

#define DELTA(s, more, len, out, ids)                                                              \
	"{\"session_id\":\"" s "\",\"input_length\":" #len ",\"output_length\":" #out "," more    \
	",\"hash_ids\":" ids "}\n"

/* Blocks of four tokens: 1111 22oo o333 34OO 55, in which o and O are outputs. */
static void test_aiperf(void)
{
	static const char text[] =
		DELTA("s", "\"timestamp\":100.5", 6, 3, "[1,2]")
		DELTA("u", "\"timestamp\":101", 6, 3, "[1,2]")
		DELTA("s", "\"delay\":1000", 5, 2, "[3,4]")
		DELTA("s", "\"delay\":0,\"timestamp\":1500", 2, 1, "[\"5\"]")
		DELTA("u", "\"delay\":500", 5, 2, "[3,4]");
	struct trace_args a = { .in.hash_tok = 4 };

	becomes(text, &a, "aiperf",
		REQ(0, 0, 6, 3) ",\"session\":\"s\",\"turn\":0,\"blocks\":[0,1]}\n"
		REQ(1, 500000, 6, 3) ",\"session\":\"u\",\"turn\":0,\"blocks\":[0,1]}\n"
		REQ(2, 500500000, 14, 2) ",\"session\":\"u\",\"turn\":1,\"think_ns\":500000000,"
		"\"blocks\":[0,7,8,9]}\n"
		REQ(3, 1000000000, 14, 2) ",\"session\":\"s\",\"turn\":1,\"think_ns\":1000000000,"
		"\"blocks\":[0,2,3,4]}\n"
		REQ(4, 1399500000, 18, 1) ",\"session\":\"s\",\"turn\":2,\"think_ns\":0,"
		"\"blocks\":[0,2,3,5,6]}\n",
		"aiperf: prompts hold the session so far, which nobody else shares");
	a.in.context = CONTEXT_CUMULATIVE;
	becomes(DELTA("s", "\"timestamp\":0", 6, 3, "[1,2]")
		DELTA("s", "\"delay\":1,\"context_mode\":\"x\"", 14, 2, "[1,9,3,4]"),
		&a, "aiperf",
		REQ(0, 0, 6, 3) ",\"session\":\"s\",\"turn\":0,\"blocks\":[0,1]}\n"
		REQ(1, 1000000, 14, 2) ",\"session\":\"s\",\"turn\":1,\"think_ns\":1000000,"
		"\"blocks\":[0,2,3,4]}\n",
		"aiperf: whole prompts where the user says so");
	a.in.context = CONTEXT_DELTA;
	becomes("{\"session_id\":\"s\",\"timestamp\":0,\"input_length\":6,\"output_length\":3,"
		"\"context_mode\":\"x\"}\n"
		DELTA("s", "\"timestamp\":1", 5, 2, "[3,4]")
		DELTA("v", "\"timestamp\":1", 5, 0, "[7,8]"),
		&a, "aiperf",
		REQ(0, 0, 6, 3) ",\"session\":\"s\",\"turn\":0}\n"
		REQ(1, 1000000, 14, 2) ",\"session\":\"s\",\"turn\":1}\n",
		"aiperf: a session with a turn of unknown blocks has none afterwards");
}

/* One request each 10.5 units. */
static void test_two_units(void)
{
	char text[101 * 64];
	size_t n = 0;

	for (int i = 0; i < 101; i++)
		n += (size_t)snprintf(text + n, sizeof text - n,
				      "{\"timestamp\":%.1f,\"input_length\":9,"
				      "\"output_length\":9}\n",
				      10.5 * i);
	refused(text, &(struct trace_args){ .in.format = (char[]){ "mooncake" } }, AR_DATA,
		": times with fractions fit both seconds and milliseconds: 0.0952 or 95.2 requests "
		"per second; say which with --time-unit",
		"mooncake: two sensible units");
}

/* Each has one sensible reading, which is not the first that its keys suggest. */
static void test_readings(void)
{
	struct trace_args a = { .in.hash_tok = 4 };

	becomes("{\"timestamp\":0.0,\"input_length\":900,\"output_length\":5,"
		"\"hash_ids\":[10,11]}\n"
		"{\"timestamp\":0.2000001,\"input_length\":700,\"output_length\":8}\n"
		"{\"timestamp\":61.5,\"input_length\":600,\"output_length\":6}\n",
		&whole, "mooncake",
		REQ(0, 0, 900, 5) ",\"blocks\":[0,1]}\n" REQ(1, 200000100, 700, 8) "}\n"
		REQ(2, 61500000000, 600, 6) "}\n",
		"mooncake: seconds");
	becomes("{\"timestamp\":0.5,\"input_length\":900,\"output_length\":5,"
		"\"hash_ids\":null}\n"
		"{\"timestamp\":9000.7,\"input_length\":700,\"output_length\":8,"
		"\"session_id\":null}\n"
		"{\"timestamp\":61000,\"input_length\":700,\"output_length\":null}\n"
		"{\"timestamp\":60000,\"input_length\":600,\"output_length\":6}\n",
		&(struct trace_args){ .in.format = (char[]){ "mooncake" } }, "mooncake",
		REQ(0, 0, 900, 5) "}\n" REQ(1, 9000200000, 700, 8) "}\n"
		REQ(2, 59999500000, 600, 6) "}\n",
		"mooncake: fractions of a millisecond; null is nothing");
	becomes(DELTA("s", "\"timestamp\":0", 8, 3, "[1,2]")
		DELTA("u", "\"timestamp\":0", 3, 3, "[9]")
		DELTA("s", "\"delay\":100", 13, 0, "[1,2,3,4]")
		DELTA("s", "\"delay\":1", 14, 2, "[1,2,3,5]"),
		&a, "aiperf",
		REQ(0, 0, 8, 3) ",\"session\":\"s\",\"turn\":0,\"blocks\":[0,1]}\n"
		REQ(1, 0, 3, 3) ",\"session\":\"u\",\"turn\":0,\"blocks\":[2]}\n"
		REQ(2, 101000000, 14, 2) ",\"session\":\"s\",\"turn\":1,\"think_ns\":101000000,"
		"\"blocks\":[0,1,3,4]}\n",
		"aiperf: each turn begins with the one before, so prompts are whole");
	refused(DELTA("s", "\"timestamp\":0", 8, 3, "[1,2]")
		DELTA("s", "\"delay\":100", 12, 1, "[1,2,3]")
		DELTA("s", "\"delay\":1", 4, 2, "[5]"),
		&a, AR_DATA,
		": hash_ids of 1 later turns begin with those of the turn before, those of 1 do "
		"not; say with --context what prompts hold",
		"aiperf: turns of both kinds");
	becomes(DELTA("s", "\"timestamp\":5", 6, 0, "[1,2]")
		DELTA("s", "\"delay\":1500", 2, 3, "[3]")
		DELTA("s", "\"delay\":20", 3, 0, "[4]")
		DELTA("s", "\"delay\":0", 0, 0, "[]")
		DELTA("s", "\"delay\":300", 4, 2, "[5]"),
		&a, "aiperf",
		REQ(0, 0, 8, 3) ",\"session\":\"s\",\"turn\":0,\"blocks\":[0,1]}\n"
		REQ(1, 320000000, 18, 2) ",\"session\":\"s\",\"turn\":1,\"think_ns\":320000000,"
		"\"blocks\":[0,1,2,3,4]}\n",
		"aiperf: turns without output stay in the prompt and in the clock");
}

/* Sessions of random deltas whose texts are never shared: a prompt shares with the turn before it
 * the blocks that were full, and nothing with others. */
static void test_delta_property(uint64_t seed)
{
	enum { SESSIONS = 5, TURNS = 40, BLOCK = 7 };
	struct rng rng = { seed };
	struct trace_args a = { .in.hash_tok = BLOCK };
	size_t n, bad = 0, last[SESSIONS] = { 0 }, served = 0, want[TURNS];
	uint32_t tok[SESSIONS] = { 0 };
	unsigned id = 0;
	char *text = NULL;
	struct ar_err err;
	struct trace *t;
	FILE *f = open_memstream(&text, &n);

	for (int i = 0; i < TURNS; i++) {
		unsigned len = 1 + (unsigned)rng_below(&rng, 3 * BLOCK);
		unsigned out = (unsigned)rng_below(&rng, 2 * BLOCK);
		int s = (int)rng_below(&rng, SESSIONS);

		fprintf(f, "{\"session_id\":\"%d\",\"timestamp\":%d,\"input_length\":%u,"
			"\"output_length\":%u,\"hash_ids\":[", s, i, len, out);
		for (unsigned k = 0; k < (len + BLOCK - 1) / BLOCK; k++)
			fprintf(f, "%s%u", k ? "," : "", id++);
		fputs("]}\n", f);
		tok[s] += len;
		if (out)
			want[served++] = tok[s];
		tok[s] += out;
	}
	fclose(f);
	t = read_with(text, &a, &err);
	for (size_t i = 0; t && i < t->n; i++) {
		const struct request *q = &t->req[i], *p = &t->req[last[q->session]];
		uint32_t same = 0;

		bad += q->prompt_tok != want[i];
		while (q->turn && same < p->n_block && same < q->n_block &&
		       trace_block(t, p, same) == trace_block(t, q, same))
			same++;
		bad += q->turn && same != p->prompt_tok / BLOCK;
		for (uint32_t b = same; b < q->n_block; b++)
			for (const struct request *c = t->req; c < q; c++)
				for (uint32_t k = 0; k < c->n_block; k++)
					bad += trace_block(t, q, b) == trace_block(t, c, k);
		last[q->session] = i;
	}
	ok(t && t->n == served && !bad, "seed %d: a turn shares the full blocks of the one before",
	   (int)seed);
	free(text);
	trace_free(t);
}

static void test_llmservingsim(void)
{
	struct trace_args a = { .in.hash_tok = 2 };

	becomes("{\"input_toks\":3,\"output_toks\":2,\"arrival_time_ns\":4059740,"
		"\"input_tok_ids\":[1,2,3],\"output_tok_ids\":[4,5]}\n"
		"{\"input_toks\":4,\"output_toks\":1,\"arrival_time_ns\":4059741,"
		"\"input_tok_ids\":[1,2,3,4]}\n"
		"{\"input_toks\":4,\"output_toks\":1,\"arrival_time_ns\":4059742,"
		"\"input_tok_ids\":[2,1,3,4]}\n",
		&a, "llmservingsim",
		REQ(0, 0, 3, 2) ",\"blocks\":[0,1]}\n" REQ(1, 1, 4, 1) ",\"blocks\":[0,2]}\n"
		REQ(2, 2, 4, 1) ",\"blocks\":[3,4]}\n",
		"llmservingsim: tokens make blocks");
	becomes("{\"session_id\":\"session_0\",\"arrival_time_ns\":4059740,\"sub_requests\":["
		"{\"input_toks\":1472,\"output_toks\":133,\"tool_duration_ns\":127348767}, "
		"{\"input_toks\":1582,\"output_toks\":125,\"tool_duration_ns\":0},"
		"{\"input_toks\":1600,\"output_toks\":0,\"tool_duration_ns\":50},"
		"{\"input_toks\":1600,\"output_toks\":1,\"tool_duration_ns\":0}]}\n"
		"{\"input_toks\":9,\"output_toks\":1,\"arrival_time_ns\":4059741}\n"
		"{\"session_id\":\"session_1\",\"arrival_time_ns\":5000000,\"sub_requests\":[]}\n",
		&whole, "llmservingsim",
		REQ(0, 0, 1472, 133) ",\"session\":\"session_0\",\"turn\":0}\n"
		REQ(1, 1, 9, 1) "}\n"
		REQ(2, 127348767, 1582, 125) ",\"session\":\"session_0\",\"turn\":1,"
		"\"think_ns\":127348767}\n"
		REQ(3, 127348817, 1600, 1) ",\"session\":\"session_0\",\"turn\":3,"
		"\"think_ns\":50}\n",
		"llmservingsim: sessions in one record, in the order of their turns");
}

/* Blocks of four tokens: 1111 222 33 and two of its own, and so on. */
#define RAG(time, len, user)                                                                       \
	"{\"timestamp\":\"" #time "\",\"input_length\":" #len ",\"output_length\":1," \
	"\"hash_ids\":{\"user_input\":" user ",\"sys_prompt\":[1],\"passages_ids\":[2]}," \
	"\"session_id\":\"a\"}\n"
#define RAG_IS(id, ns, len, turn, ids)                                                             \
	REQ(id, ns, len, 1) ",\"session\":\"a\",\"turn\":" #turn ids "}\n"

static const char rag[] = RAG(0, 11, "[3]") RAG(27, 9, "[4]") RAG(28, 8, "[]") RAG(28, 8, "[]");
static const char lengths[] = "{\"sys_prompt_id\": 1, \"token_length\": 4}\n\n"
			      "{\"passage_id\": 2, \"token_length\": 3}\n"
			      "{\"user_input_id\":3,\"token_length\":2}\n"
			      "{\"token_length\":1,\"user_input_id\":4}\n";

static void test_ragpulse(const char *lengths_path)
{
	char name[80];
	char *files[] = { name };
	struct trace_args a = { .in.hash_tok = 4, .in.components = { files, 1 } };

	snprintf(name, sizeof name, "%s", lengths_path);
	file_write(lengths_path, lengths, strlen(lengths));
	becomes(rag, &a, "ragpulse",
		RAG_IS(0, 0, 11, 0, ",\"blocks\":[0,1,2]")
		RAG_IS(1, 27000000000, 9, 1, ",\"blocks\":[0,3,4]")
		RAG_IS(2, 28000000000, 8, 2, ",\"blocks\":[0,5]")
		RAG_IS(3, 28000000000, 8, 3, ",\"blocks\":[0,6]"),
		"ragpulse: components in their order make blocks");
	survive(rag, strlen(rag), &a, "ragpulse with lengths");
	refused(RAG(0, 11, "[5]"), &a, AR_DATA, ":1: component 5 is in no file of --components",
		"ragpulse: a component without a length");
	refused(RAG(0, 8, "[3]"), &a, AR_DATA, ":1: the components are longer than input_length",
		"ragpulse: a prompt shorter than its components");
	refused(rag, &(struct trace_args){ .in.hash_tok = 4 }, AR_USAGE,
		"--hash-block needs --components in format ragpulse",
		"ragpulse: no blocks without lengths");
	a.in.hash_tok = 0;
	becomes(rag, &whole, "ragpulse",
		RAG_IS(0, 0, 11, 0, "") RAG_IS(1, 27000000000, 9, 1, "")
		RAG_IS(2, 28000000000, 8, 2, "") RAG_IS(3, 28000000000, 8, 3, ""),
		"ragpulse: lengths and sessions alone");
}

static void test_bad_lengths(const char *lengths_path)
{
	static const struct {
		const char *text, *message;	/* after the path */
	} bad[] = {
		{ "{\"passage_id\":0,\"token_length\":1}\n{\"history_id\":0,\"token_length\":2}\n",
		  ":2: component 0 has a length already" },
		{ "{\"passage_id\":0}\n",
		  ":1: want a component such as {\"passage_id\": 0, \"token_length\": 84}" },
		{ "{\"id\":0,\"token_length\":84}\n",
		  ":1: want a component such as {\"passage_id\": 0, \"token_length\": 84}" },
		{ "{\"passage_id\":-1,\"token_length\":84}\n",
		  ":1: want a component such as {\"passage_id\": 0, \"token_length\": 84}" },
		{ "{\"passage_id\":0,\"token_length\":-84}\n",
		  ":1: token_length is \"-84\", want an integer from 0 to 2147483647" },
		{ "{\"passage_id\":0,\"token_length\":84\n", ":1: not a JSON object (near \"\")" },
		{ "PK\3\4", ": this is a zip archive; unpack it first" },
	};
	char name[80];
	char *files[] = { name };
	struct trace_args a = { .in.components = { files, 1 } };
	struct ar_err err;

	snprintf(name, sizeof name, "%s", lengths_path);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct trace *t;

		file_write(lengths_path, bad[i].text, strlen(bad[i].text));
		t = read_with(rag, &a, &err);
		ok(!t && err.status == AR_DATA &&
		   !strncmp(err.msg, lengths_path, strlen(lengths_path)),
		   "lengths %zu: bad data of their own file", i);
		is_str(err.msg + strlen(lengths_path), bad[i].message,
		       "lengths %zu: what and where", i);
		trace_free(t);
	}
	unlink(lengths_path);
	ok(!read_with(rag, &a, &err) && strstr(err.msg, "No such file"), "no file of lengths");
}

/* Recordings of 100 s and of 90 s, and the begin of a third. */
#define WK(more, requests) \
	"{\"id\":\"s\",\"block_size\":64,\"hash_id_scope\":\"local\"" more ",\"requests\":[" \
	requests "]}\n"
#define WK_REQ(t, more, in, out, ids) \
	"{\"t\":" #t ",\"type\":\"s\",\"in\":" #in ",\"out\":" #out ",\"hash_ids\":[" \
	ids "]" more "}"
#define WK_SUB(t, more, requests) \
	"{\"t\":" #t ",\"type\":\"subagent\"" more ",\"requests\":[" requests "]}"
#define WK_IS(id, ns, in, out, session, turn, more) \
	"{\"id\":" #id ",\"arrival_ns\":" #ns ",\"prompt_tokens\":" #in ",\"output_tokens\":" \
	#out ",\"session\":\"" session "\",\"turn\":" #turn more "}\n"

/* Two sub-agents at a time; the second has no time of its first request's end. */
static const char weka[] =
	WK("", WK_REQ(1, ",\"api_time\":1.5,\"model\":\"m\"", 140, 5, "1,2") ","
	   WK_SUB(9, ",\"agent_id\":\"a\",\"duration_ms\":6000,\"status\":\"completed\"",
		  WK_REQ(0, "", 64, 1, "7") "," WK_REQ(4, ",\"think_time\":3", 70, 1, "7")) ","
	   WK_SUB(8, ",\"agent_id\":\"b\",\"duration_ms\":5250,\"status\":\"completed\"",
		  WK_REQ(0.5, ",\"api_time\":2", 64, 1, "7")) ","
	   WK_REQ(12, ",\"think_time\":9", 192, 0, "1,2,3") ","
	   WK_SUB(13, ",\"status\":\"async_launched\"", WK_REQ(0, "", 10, 1, "")) ","
	   WK_REQ(20, ",\"think_time\":5", 128, 2, "1,4") ","
	   WK_REQ(30, "", 63, 2, ""))
	WK(",\"totals\":{\"combined_tokens\":{\"input\":1,\"output\":0}}",
	   WK_REQ(1, "", 1, 0, ""));

static void test_weka(void)
{
	char *text = strdup(weka), zero[] = "zero", within[] = "0:1";
	const struct trace_args middle = { .session_starts = zero, .start_within = within };

	strstr(strchr(text, '\n'), "\"s\"")[1] = 'u';
	becomes(text, &whole, "weka",
		WK_IS(0, 0, 140, 5, "s", 0, ",\"blocks\":[0,1,4503599627370496],\"label\":\"m\"")
		WK_IS(1, 0, 1, 1, "u", 0, ",\"blocks\":[4503599627370504]")
		WK_IS(2, 2000000000, 64, 1, "s/a", 0,
		      ",\"think_ns\":500000000,\"x_after\":0,\"blocks\":[2]")
		WK_IS(3, 2250000000, 64, 1, "s/b", 0,
		      ",\"think_ns\":750000000,\"x_after\":0,\"blocks\":[2]")
		WK_IS(4, 6000000000, 70, 1, "s/a", 1,
		      ",\"think_ns\":3000000000,\"blocks\":[2,4503599627370498]")
		WK_IS(5, 11000000000, 192, 1, "s", 1,
		      ",\"think_ns\":9000000000,\"x_join\":[4,3]"
		      ",\"x_join_ns\":3000000000,\"blocks\":[0,1,3]")
		WK_IS(6, 12000000000, 10, 1, "s/3", 0,
		      ",\"think_ns\":0,\"x_after\":5,\"blocks\":[4503599627370501]")
		WK_IS(7, 19000000000, 128, 2, "s", 2,
		      ",\"think_ns\":5000000000,\"x_after\":0,\"blocks\":[0,4]")
		WK_IS(8, 29000000000, 63, 2, "s", 3,
		      ",\"think_ns\":8500000000,\"blocks\":[4503599627370503]"),
		"weka: sessions, sub-agents and what they wait for");
	survive(text, strlen(text), &whole, "weka");
	survive(text, strlen(text), &middle, "weka, begun in the middle");
	free(text);
}

/* Session s has two blocks of tools and system prompts, t has one, and their sub-agents one. */
static void test_warm_weka(void)
{
#define WARM(tool, system) ",\"tool_tokens\":" #tool ",\"system_tokens\":" #system
	static const char text[] =
		WK(WARM(100, 40), WK_REQ(0, "", 192, 1, "1,2,3") ","
		   WK_SUB(1, WARM(64, 0), WK_REQ(0, "", 128, 1, "11,12")) ","
		   WK_REQ(2, "", 128, 1, "4,5") "," WK_REQ(3, "", 192, 1, "1,2,6"))
		"{\"id\":\"t\",\"block_size\":64,\"hash_id_scope\":\"local\"" WARM(64, 63)
		",\"requests\":[" WK_REQ(4, "", 128, 1, "7,8") ","
		WK_SUB(5, WARM(64, 0), WK_REQ(0, "", 128, 1, "9,10")) "]}\n";
	struct trace_args a = { .in.warm_prefix = 1 };

	becomes(text, &a, "weka",
		WK_IS(0, 0, 192, 1, "s", 0, ",\"blocks\":[1125899906842624,1125899906842625,2]")
		WK_IS(1, 1000000000, 128, 1, "s/1", 0,
		      ",\"think_ns\":1000000000,\"x_after\":0,\"blocks\":[2251799813685248,4]")
		WK_IS(2, 2000000000, 128, 1, "s", 1,
		      ",\"think_ns\":2000000000,\"blocks\":[5,6]")
		WK_IS(3, 3000000000, 192, 1, "s", 2, ",\"think_ns\":1000000000,"
		      "\"blocks\":[1125899906842624,1125899906842625,7]")
		WK_IS(4, 4000000000, 128, 1, "t", 0, ",\"blocks\":[1125899906842624,9]")
		WK_IS(5, 5000000000, 128, 1, "t/1", 0,
		      ",\"think_ns\":1000000000,\"x_after\":4,\"blocks\":[2251799813685248,11]"),
		"weka: sessions share tools and system prompts");
	survive(text, strlen(text), &a, "weka, warm");
	refused(WK(",\"tool_tokens\":-1", WK_REQ(0, "", 1, 1, "")), &a, AR_DATA,
		":1: tool_tokens is \"-1\", want an integer from 0 to 2147483647",
		"weka: tools without a number");
}

/* One session whose second line, if there is one, is read as a large record. */
#define WK_BAD(requests) WK("", WK_REQ(0, "", 64, 1, "1") "," requests)
#define WK_TWO(line) WK("", WK_REQ(0, "", 64, 1, "1")) line "\n"

static void test_bad_weka(void)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{ WK_BAD(WK_REQ(1, "", 128, 1, "2,1")),
		  ":1: hash_ids has 1 behind another id than before; an id stands for all that is "
		  "before it" },
		{ WK_BAD(WK_REQ(1, "", 128, 1, "1")),
		  ":1: in 128 makes 2 full blocks of 64 tokens, hash_ids has 1" },
		{ WK_BAD(WK_REQ(1, "", 64, 1, "-1")),
		  ":1: hash_ids has \"-1\", want integers from 0" },
		{ WK_BAD(WK_REQ(1, "", 64, 1, "111111111111111111111")),
		  ":1: hash_ids has \"111111111111111111111\", want integers from 0" },
		{ WK_BAD("{\"hash_ids\":3}"), ":1: hash_ids is \"3\", want an array" },
		{ WK_BAD(WK_REQ(1, "", 0, 1, "")),
		  ":1: in is \"0\", want an integer from 1 to 2147483647" },
		{ WK_BAD(WK_REQ(1, "", 1, 1.5, "")),
		  ":1: out is \"1.5\", want an integer from 0 to 2147483647" },
		{ WK_BAD("{\"t\":1,\"type\":\"n\",\"in\":1,\"hash_ids\":[]}"),
		  ":1: a request lacks \"out\"" },
		{ WK_BAD("{\"t\":1,\"type\":\"n\",\"in\":1,\"out\":1}"),
		  ":1: a request lacks \"hash_ids\"" },
		{ WK_BAD("{\"type\":\"n\",\"in\":1,\"out\":1,\"hash_ids\":[]}"),
		  ":1: a request lacks \"t\"" },
		{ WK_BAD(WK_REQ(-1, "", 1, 1, "")),
		  ":1: t is \"-1\", want a time that is a number from 0 on" },
		{ WK_BAD(WK_REQ(1, ",\"api_time\":-1", 1, 1, "")),
		  ":1: api_time is \"-1\", want a time that is a number from 0 on" },
		{ WK_BAD(WK_REQ(2, "", 1, 1, "") "," WK_REQ(1, "", 1, 1, "")),
		  ":1: t goes back to 1" },
		{ WK_BAD(WK_REQ(2, ",\"t\":3", 1, 1, "")), ":1: key \"t\" appears twice" },
		{ WK_BAD(WK_REQ(2, ",\"model\":3", 1, 1, "")),
		  ":1: model is \"3\", want a string" },
		{ WK_BAD("3"), ":1: requests has \"3\", want objects" },
		{ WK_BAD("{\"type\":\"x\"}"),
		  ":1: type is \"x\", want \"n\", \"s\" or \"subagent\"" },
		{ WK_BAD("{}"), ":1: type is absent, want \"n\", \"s\" or \"subagent\"" },
		{ WK("", WK_SUB(0, "", "")), ":1: a sub-agent before the first request" },
		{ WK_BAD("{\"type\":\"subagent\"}"), ":1: a sub-agent lacks \"requests\"" },
		{ WK_BAD("{\"type\":\"subagent\",\"requests\":[]}"),
		  ":1: a sub-agent lacks \"t\"" },
		{ WK_BAD("{\"type\":\"subagent\",\"t\":1,\"requests\":3}"),
		  ":1: requests is not an array" },
		{ WK_BAD("{\"type\":\"subagent\",\"hash_ids\":[],\"requests\":[]}"),
		  ":1: a sub-agent has hash_ids" },
		{ WK_BAD(WK_SUB(1, ",\"status\":\"completed\"", "")),
		  ":1: duration_ms of a completed sub-agent is \"\", want a time up to its t" },
		{ WK_BAD(WK_SUB(1, ",\"status\":\"completed\",\"duration_ms\":1001", "")),
		  ":1: duration_ms of a completed sub-agent is \"1001\", want a time up to its t" },
		{ WK_BAD(WK_SUB(1, ",\"agent_id\":3", "")),
		  ":1: agent_id is \"3\", want a plain string" },
		{ WK_BAD(WK_SUB(1, ",\"agent_id\":\"a\"", WK_REQ(0, "", 1, 1, "")) ","
			 WK_SUB(1, ",\"agent_id\":\"a\"", WK_REQ(0, "", 1, 1, ""))),
		  ":1: two sub-agents have agent_id \"a\"" },
		{ WK_BAD(WK_SUB(9e9, "", WK_REQ(9e9, "", 1, 1, ""))),
		  ":1: the time goes beyond 2^63 ns" },
		{ WK_TWO("{\"id\":\"s\",\"block_size\":64,\"hash_id_scope\":\"local\","
			 "\"requests\":[]}"), ":2: session s is in the file twice" },
		{ WK_TWO("{\"id\":\"t\",\"block_size\":32,\"hash_id_scope\":\"local\","
			 "\"requests\":[]}"),
		  ":2: block_size or hash_id_scope differs from the line before; split the file" },
		{ WK_TWO("{\"id\":\"t\",\"block_size\":64,\"hash_id_scope\":\"global\","
			 "\"requests\":[]}"),
		  ":2: block_size or hash_id_scope differs from the line before; split the file" },
		{ "{\"id\":\"t\",\"block_size\":0,\"hash_id_scope\":\"local\",\"requests\":[]}\n",
		  ":1: block_size is 0, want an integer from 1 to 1048576" },
		{ "{\"id\":\"t\",\"block_size\":1,\"hash_id_scope\":\"all\",\"requests\":[]}\n",
		  ":1: hash_id_scope is \"all\", want \"local\" or \"global\"" },
		{ WK(",\"totals\":{\"combined_tokens\":{\"input\":9}}", WK_REQ(0, "", 1, 1, "")),
		  ":1: totals.combined_tokens.input is 9, but the requests have 1" },
		{ WK("", ""), ": no requests in the file" },
		{ WK_TWO("{\"id\":\"t\",}"), ":2: not a JSON object (near \"}\")" },
		{ WK_TWO("{\"id\":\"t\\x\"}"), ":2: not a JSON object (near \"\"t\\x\"}\")" },
		{ WK_TWO("{\"id\":\"t"), ":2: not a JSON object (near \"\"t\")" },
		{ WK_TWO("{\"id\":-}"), ":2: not a JSON object (near \"-}\")" },
		{ WK_TWO("{\"id\":01}"), ":2: not a JSON object (near \"01}\")" },
		{ WK_TWO("{\"id\":1.}"), ":2: not a JSON object (near \"1.}\")" },
		{ WK_TWO("{\"id\":1e+}"), ":2: not a JSON object (near \"1e+}\")" },
		{ WK_TWO("{\"id\":tru}"), ":2: not a JSON object (near \"tru}\")" },
		{ WK_TWO("{\"id\" 1}"), ":2: not a JSON object (near \"\"id\" 1}\")" },
		{ WK_TWO("{\"id\":[1 2]}"), ":2: not a JSON object (near \"2]}\")" },
		{ WK_TWO("{\"id\":1} 2"), ":2: not a JSON object (near \" 2\")" },
		{ WK_TWO("{\"id\":1,\"id\":1}"), ":2: key \"id\" appears twice" },
		{ WK_TWO("{\"id\":[true,false,null,-0.5e-3,\"\\u0041\",{},[]]}"),
		  ":2: the record lacks \"block_size\"" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(bad[i].text, &whole, AR_DATA, bad[i].message, "weka: refused");
}

/* Sub-agents within sub-agents, and arrays within arrays. */
static void test_deep_weka(void)
{
	char text[4000] = WK("", WK_REQ(0, "", 1, 1, ""));
	char *end = strstr(text, "]}\n");

	for (int i = 0; i < 9; i++)
		end += sprintf(end, ",{\"t\":1,\"type\":\"subagent\",\"requests\":["
			       WK_REQ(0, "", 1, 1, ""));
	for (int i = 0; i < 9; i++)
		end += sprintf(end, "]}");
	strcpy(end, "]}\n");
	refused(text, &whole, AR_DATA, ":1: sub-agents go deeper than 8 levels",
		"weka: too many levels");
	strcpy(text, WK_TWO("{\"id\":"));
	end = text + strlen(text) - 1;
	for (int i = 0; i < 70; i++)
		*end++ = '[';
	strcpy(end, "\n");
	refused(text, &whole, AR_DATA, ":2: not a JSON object (near \"[[[[[[[\")",
		"weka: too many arrays");
}

/* A line of 10 MB, compressed: whole, and cut within its frame. */
static void test_long_weka(void)
{
	enum { IDS = 1420000 };
	struct ar_err err;
	struct trace *t;
	char *text = NULL, *zst;
	size_t n, size;
	FILE *f = open_memstream(&text, &n);

	fprintf(f, "{\"id\":\"s\",\"block_size\":64,\"hash_id_scope\":\"local\",\"requests\":"
		   "[{\"t\":0,\"type\":\"n\",\"in\":%d,\"out\":1,\"hash_ids\":[0", 64 * IDS);
	for (int i = 1; i < IDS; i++)
		fprintf(f, ",%d", i);
	fprintf(f, "]}]}\n");
	fclose(f);
	size = ZSTD_compressBound(n);
	zst = malloc(size);
	size = ZSTD_compress(zst, size, text, n, 1);
	put(zst, size);
	ok(n > 10000000 && !trace_read(&t, path, &whole, &err) && t->n == 1 &&
		   t->req[0].n_block == IDS && t->req[0].n_run == 1,
	   "weka: a line of 10 MB, whose ids take little room");
	trace_free(t);
	put(zst, size / 2);
	ok(trace_read(&t, path, &whole, &err) == AR_DATA &&
		   !strcmp(err.msg + strlen(path),
			   ":1: the zstd data end inside a frame; the file is truncated"),
	   "... and what is wrong with the half of it: %s", err.msg);
	trace_free(t);
	free(zst);
	free(text);
}

/* Sessions of the trace itself: see tests/data/README.md. */
static void test_real_weka(void)
{
	const char *srcdir = getenv("srcdir");
	const struct request *q;
	struct ar_err err = { 0 };
	struct trace *t;
	char name[300];
	uint32_t same = 0;

	snprintf(name, sizeof name, "%s/tests/data/weka-2.jsonl", srcdir ? srcdir : ".");
	if (trace_read(&t, name, &whole, &err))
		bail_out("%s", err.msg);
	is_int((long long)t->n, 7, "weka: two real sessions");
	q = t->req;
	ok(q[2].arrival_ns == 6000000000 && q[2].think_ns == 3000000000 &&
		   q[2].prompt_tok == 11443 &&
		   q[4].arrival_ns == 12000000000 && q[4].n_block == 221 && q[4].output_tok == 257,
	   "... one without sub-agents");
	while (trace_block(t, &q[2], same) == trace_block(t, &q[4], same))
		same++;
	is_int(same, 178, "... whose turns share full blocks");
	ok(q[3].arrival_ns == 8212000000 && q[3].think_ns == 942000000 && !q[3].turn,
	   "... a sub-agent, which starts after a turn");
	ok(q[6].arrival_ns == 153000000000 && q[6].think_ns == 145000000000 &&
		   t->link[q[3].session].join == q[6].turn &&
		   t->link[q[3].session].join_ns == 18773000000,
	   "... and for which the next turn waits");
	trace_free(t);
}

/* The same session on many lines. */
static void test_one_value(void)
{
	becomes("{\n\"id\": \"s\",\n \"block_size\": 64, "
		"\"hash_id_scope\": \"global\",\n\"requests\": [\n"
		"{\"t\": 0, \"type\": \"s\",\n\"in\": 64, \"out\": 1, "
		"\"hash_ids\": [\n1\n]}\n]\n}\n",
		&whole, "weka", WK_IS(0, 0, 64, 1, "s", 0, ",\"blocks\":[0]"),
		"weka: a session on many lines");
}

static void test_restart(void)
{
	static const char text[] = VI "1000,1,1\n1100,2,1\n1000,3,1\n1090,4,1\n1001,5,1\n";
	struct trace_args a = { .in.restart = RESTART_APPEND };

	becomes(text, &a, "vidur",
		REQ(0, 0, 1, 1) "}\n" REQ(1, 100000000000, 2, 1) "}\n"
		REQ(2, 100000000000, 3, 1) "}\n" REQ(3, 190000000000, 4, 1) "}\n"
		REQ(4, 190000000000, 5, 1) "}\n",
		"a recording is appended at the last arrival");
	a.in.period_ns = 120000000000;
	becomes(text, &a, "vidur",
		REQ(0, 0, 1, 1) "}\n" REQ(1, 100000000000, 2, 1) "}\n"
		REQ(2, 120000000000, 3, 1) "}\n" REQ(3, 210000000000, 4, 1) "}\n"
		REQ(4, 241000000000, 5, 1) "}\n",
		"or a period after the start of the one before");
	a.in.period_ns = 99000000000;
	refused(text, &a, AR_DATA, ":4: the clock goes back by 100 s, more than --restart-period",
		"recordings do not overlap");
	a.in.period_ns = INT64_MAX;
	refused(text, &a, AR_DATA, ":4: --restart-period goes beyond 2^63 ns", "a period too long");
	a.in.period_ns = 8000000000000000000;
	refused(VI "0,1,1\n2,1,1\n0,1,1\n1e9,1,1\n2e9,1,1\n", &a, AR_DATA,
		":6: the time goes beyond 2^63 ns", "a time too late");
	a.in.period_ns = 7545829636500000000;
	refused(AZ "2023-02-28 00:00:00,1,1\n2023-02-28 01:00:00,1,1\n2023-02-28 00:00:00,1,1\n",
		&a, AR_DATA, ":4: the time goes beyond the year 2262", "a date too late");
	a = (struct trace_args){ .in.restart = RESTART_SORT };
	becomes(text, &a, "vidur",
		REQ(0, 0, 1, 1) "}\n" REQ(1, 0, 3, 1) "}\n" REQ(2, 1000000000, 5, 1) "}\n"
		REQ(3, 90000000000, 4, 1) "}\n" REQ(4, 100000000000, 2, 1) "}\n",
		"or all recordings are laid over each other");
	a.in.period_ns = 1;
	refused(text, &a, AR_USAGE, "--restart-period needs --restart append",
		"a period of nothing");
}

static void test_useless_options(void)
{
	char name[] = "x";
	char *files[] = { name };
	static const char vidur[] = VI "0,1,1\n";
	const struct {
		struct trace_args a;
		const char *message;
	} useless[] = {
		{ { .in.context = CONTEXT_DELTA },
		  "--context has no effect on a trace in format vidur" },
		{ { .in.hash_tok = 16 }, "--hash-block has no effect on a trace in format vidur" },
		{ { .in.image_tok = 16 },
		  "--image-tokens has no effect on a trace in format vidur" },
		{ { .in.warm_prefix = 1 },
		  "--warm-prefix has no effect on a trace in format vidur" },
		{ { .in.components = { files, 1 } },
		  "--components has no effect on a trace in format vidur" },
	};

	for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
		refused(vidur, &useless[i].a, AR_USAGE, useless[i].message,
			"an option without effect is wrong usage");
}

/* ---- telling formats apart ---- */

/* The columns of a and of b that a lacks, from the last to the first. */
static void header(char *buf, size_t size, const struct importer *a, const struct importer *b)
{
	const char *names[32];
	size_t n = 0, at = 0;

	for (const char *const *s = a->need; *s; s++)
		names[n++] = *s;
	for (const char *const *s = b->need; *s; s++)
		if (!name_among(a->need, *s))
			names[n++] = *s;
	while (n--)
		at += (size_t)snprintf(buf + at, size - at, "%s%s", names[n], n ? "," : "\n");
}

/* Every pair of CSV formats.  Azure's columns are among the columns of its multimodal traces. */
static void test_csv_pairs(void)
{
	for (int i = 0; importers[i]; i++)
		for (int j = i; importers[j]; j++) {
			const struct importer *a = importers[i], *b = importers[j];
			char text[512], want[200], what[80];

			if (a->kind != RECORD_CSV || b->kind != RECORD_CSV)
				continue;
			header(text, sizeof text, a, b);
			if (a == b || (a == &importer_azure && b == &importer_azure_lmm))
				snprintf(want, sizeof want, ": no requests in the file");
			else if (a == &importer_azure)
				snprintf(want, sizeof want, ":1: formats azure and %s both fit; "
					 "say which with --format", b->name);
			else
				snprintf(want, sizeof want, ":1: formats %s and %s both fit; say "
					 "which with --format", a->name, b->name);
			snprintf(what, sizeof what, "columns of %s and %s", a->name, b->name);
			refused(text, &whole, AR_DATA, want, what);
		}
}

/* ---- a sample of each format ---- */

/* The sample's path, which stands in messages. */
static const char *sample_path(const struct importer *f)
{
	static char name[512];
	const char *srcdir = getenv("srcdir");

	snprintf(name, sizeof name, "%s/tests/data/corpus/trace/%s.%s", srcdir ? srcdir : ".",
		 f->name, f->kind == RECORD_CSV ? "csv" : "jsonl");
	return name;
}

/* A file that is cut anywhere is read, or refused with its name. */
static void test_cut(const struct importer *f, const unsigned char *data, size_t n)
{
	long bad = 0;

	for (size_t k = 0; k < n; k++) {
		struct trace *t;
		struct ar_err err;

		put(data, k);
		bad += trace_read(&t, path, &whole, &err) &&
		       (err.status != AR_DATA || strncmp(err.msg, path, strlen(path)) != 0);
		trace_free(t);
	}
	is_int(bad, 0, "%s: a cut sample is read or refused", f->name);
}

/* A trace is the same after a round trip through the canonical form. */
static void test_round_trip(const struct importer *f, const struct trace *t)
{
	char *text = canonical(t), *again = NULL;
	struct trace *u = read_text(text);

	if (u)
		again = canonical(u);
	is_str(again, text, "%s: its sample has a canonical form", f->name);
	free(text);
	free(again);
	trace_free(u);
}

static void test_sample(const struct importer *f)
{
	const char *name = sample_path(f);
	struct ar_err err = { 0 };
	unsigned char *data;
	struct trace *t;
	size_t n;

	if (!ok(!access(name, R_OK), "%s: the format has a sample", f->name)) {
		diag("write a few records, with what is optional in them, to %s", name);
		return;
	}
	data = file_read(name, &n);
	put(data, n);
	if (trace_read(&t, path, &whole, &err))
		diag("%s", err.msg);
	is_str(t ? t->format : NULL, f->name, "%s: its sample is known by its content", f->name);
	if (t)
		test_round_trip(f, t);
	trace_free(t);
	test_cut(f, data, n);
	survive(data, n, &whole, f->name);
	free(data);
}

int main(void)
{
	char lengths_path[80];

	text_begin();
	snprintf(lengths_path, sizeof lengths_path, "%s-lengths", path);
	plan(0);
	test_azure_lmm();
	test_burstgpt();
	test_splitwise();
	test_vllm();
	test_bailian();
	test_aiperf();
	test_readings();
	test_two_units();
	for (uint64_t seed = 1; seed <= 3; seed++)
		test_delta_property(seed);
	test_llmservingsim();
	test_ragpulse(lengths_path);
	test_bad_lengths(lengths_path);
	test_weka();
	test_warm_weka();
	test_bad_weka();
	test_deep_weka();
	test_long_weka();
	test_real_weka();
	test_one_value();
	test_restart();
	test_useless_options();
	test_csv_pairs();
	for (int i = 0; importers[i]; i++)
		test_sample(importers[i]);
	text_end();
	return done_testing();
}
