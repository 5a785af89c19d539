/* Bad traces: every message of the reader and the importers, word for word. */
#include "config.h"

#include <string.h>

#include "tests/trace_text.h"

#define MO(len, ids)                                                                               \
	"{\"timestamp\":0,\"input_length\":" #len ",\"output_length\":1,\"hash_ids\":" ids "}\n"
#define HEAD(bs, n)                                                                                \
	"{\"format\":\"reqtrace\",\"version\":1,\"block_size\":" #bs ",\"requests\":" #n "}\n"
#define REQ(id, ns, more)                                                                          \
	"{\"id\":" #id ",\"arrival_ns\":" #ns ",\"prompt_tokens\":20,\"output_tokens\":3" more "}" \
											       "\n"
#define SES(s, t) ",\"session\":" s ",\"turn\":" t
#define COLUMNS_8 ",,,,,,,,"
#define COLUMNS_64 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8
#define KEYS_8(a)                                                                                  \
	"\"" a "0\":0,\"" a "1\":0,\"" a "2\":0,\"" a "3\":0,\"" a "4\":0,\"" a "5\":0,\"" a       \
	"6\":0,\"" a "7\":0,"

static const struct fault {
	const char *text, *message;	/* after the path */
} faults[] = {
	/* containers */
	{ "", ": no requests in the file" },
	{ "\n\n", ": no requests in the file" },
	{ AZ, ": no requests in the file" },
	{ "\x1f\x8b\x08", ": this is gzip data; decompress it with 'gzip -dc' first" },
	{ "PK\3\4", ": this is a zip archive; unpack it first" },
	{ "PAR1\x15", ": this is a Parquet file; export it as CSV or JSON lines" },
	{ "ARROW1", ": this is an Arrow file; export it as CSV or JSON lines" },
	{ "\xff\xfe{", ": this is UTF-16 text; convert it to UTF-8" },
	{ "\xfe\xff", ": this is UTF-16 text; convert it to UTF-8" },
	{ "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
	  ": this is a Git LFS pointer, not the data; fetch the file itself" },
	{ "\n <!DOCTYPE html>",
	  ": this is HTML or XML, perhaps an error page; download the file again" },
	{ " [{\"timestamp\":0}]",
	  ": this is a JSON array; write one JSON object per line instead" },
	{ AZ "2023-11-16 18:15:46,3\r74,44\n", ":2: a carriage return inside the line" },
	/* CSV */
	{ "a,b\n1,2\n", ":1: unknown trace format (have: a, b); see attnreplay-trace(5)" },
	{ "a,b,a\n", ":1: column \"a\" appears twice" },
	{ COLUMNS_64 "\n", ":1: more than 64 columns" },
	{ "a,\"b\n\"\n", ":1: a quoted field must end on its line, before a comma" },
	{ VI "0,1,\"1\"x\n", ":2: a quoted field must end on its line, before a comma" },
	{ VI "0,1\n", ":2: the row has 2 fields, the header 3" },
	{ VI "0,1,1,\n", ":2: the row has 4 fields, the header 3" },
	{ VI "0,1,1\n# note\n", ":3: comments are not part of any format; remove the line" },
	{ "TIMESTAMP,ContextTokens,GeneratedTokens,arrived_at,num_prefill_tokens,num_decode_"
	  "tokens\n",
	  ":1: formats azure and vidur both fit; say which with --format" },
	/* numbers */
	{ VI "0,-3,1\n", ":2: num_prefill_tokens is \"-3\", want an integer from 0 to 2147483647" },
	{ VI "0,13.7,1\n",
	  ":2: num_prefill_tokens is \"13.7\", want an integer from 0 to 2147483647" },
	{ VI "0,13.,1\n",
	  ":2: num_prefill_tokens is \"13.\", want an integer from 0 to 2147483647" },
	{ VI "0,1,\n", ":2: num_decode_tokens is \"\", want an integer from 0 to 2147483647" },
	{ VI "0,1,nan\n",
	  ":2: num_decode_tokens is \"nan\", want an integer from 0 to 2147483647" },
	{ VI "0,0x10,1\n",
	  ":2: num_prefill_tokens is \"0x10\", want an integer from 0 to 2147483647" },
	{ VI "0,2147483648,1\n",
	  ":2: num_prefill_tokens is \"2147483648\", want an integer from 0 to 2147483647" },
	{ VI "0,\"1,000\",1\n",
	  ":2: num_prefill_tokens is \"1,000\", want an integer from 0 to 2147483647" },
	{ VI "0,11111111111111111111111111111111111111111\x01,1\n",
	  ":2: num_prefill_tokens is "
	  "\"1111111111111111111111111111111111111111...\", want an integer from 0 to 2147483647" },
	{ VI "-1,1,1\n", ":2: arrived_at is \"-1\", want a time that is a number from 0 on" },
	{ VI "1e10,1,1\n", ":2: arrived_at is \"1e10\", want a time that is a number from 0 on" },
	{ VI "x,1,1\n", ":2: arrived_at is \"x\", want a time that is a number from 0 on" },
	/* dates */
	{ AZ "2023-11-16,1,1\n",
	  ":2: TIMESTAMP is \"2023-11-16\", want a date and time such as 2023-11-16 18:15:46.68" },
	{ AZ "2023-02-29 00:00:00,1,1\n",
	  ":2: TIMESTAMP is \"2023-02-29 00:00:00\", want a date and time such as "
	  "2023-11-16 18:15:46.68" },
	{ AZ "2023-02-28 00:00:00.1234567890,1,1\n",
	  ":2: TIMESTAMP is \"2023-02-28 00:00:00.1234567890\", want a "
	  "date and time such as 2023-11-16 18:15:46.68" },
	{ AZ "2023-02-28 00:00:00Z,1,1\n2023-02-28 00:00:01,1,1\n",
	  ":3: TIMESTAMP lacks a time zone, unlike those before; make the file uniform" },
	{ AZ "2023-02-28 00:00:00,1,1\n2023-02-28 00:00:01Z,1,1\n",
	  ":3: TIMESTAMP has a time zone, unlike those before; make the file uniform" },
	/* order */
	{ VI "0,1,1\n604453,1,1\n0,1,1\n",
	  ":4: the clock goes back by 604453 s; the file holds several recordings, see --restart" },
	/* JSON */
	{ "{\"a\":1\n", ":1: not a JSON object (near \"\")" },
	{ MO(20, "[0]") "null\n", ":2: not a JSON object (near \"null\")" },
	{ MO(20, "[0]") MO(NaN, "[0]"),
	  ":2: not a JSON object (near \"NaN,\"output_length\":1,\"hash_ids\":[0]}\")" },
	{ MO(20, "[0]") "{}{}\n", ":2: not a JSON object (near \"{}\")" },
	{ MO(20, "[0]") "{\"a\":\"\x01\"}\n", ":2: not a JSON object (near \"{\"a\":\"?\"}\")" },
	{ "{\"a\":1,\"a\":2}\n", ":1: key \"a\" appears twice" },
	{ "{" KEYS_8("a") KEYS_8("b") KEYS_8("c") KEYS_8("d") KEYS_8("e") KEYS_8("f") KEYS_8("g")
		  KEYS_8("h") "\"i\":0}",
	  ":1: more than 64 keys" },
	/* Mooncake */
	{ MO(20, "[0]") "{\"input_length\":1,\"output_length\":1}\n",
	  ":2: the record lacks \"timestamp\"" },
	{ MO(20, "[0,1,2]"), ":1: input_length 20 makes 1 blocks of 512 tokens, hash_ids has 3; "
	  "it would fit --hash-block 8" },
	{ MO(2290, "[0, 1, 2, 3]"),
	  ":1: input_length 2290 makes 5 blocks of 512 tokens, hash_ids has 4" },
	{ MO(20, "[]"), ":1: input_length 20 makes 1 blocks of 512 tokens, hash_ids has 0" },
	{ MO(20, "[-1]"), ":1: hash_ids holds \"-1\", want integers from 0 or plain strings" },
	{ MO(20, "[[1]]"), ":1: hash_ids holds \"[1]\", want integers from 0 or plain strings" },
	{ MO(20, "[\"\\n\"]"),
	  ":1: hash_ids holds \"\"\\n\"\", want integers from 0 or plain strings" },
	{ MO(20, "[0]") MO(20, "7"), ":2: hash_ids is \"7\", want an array" },
	{ MO("374", "[0]"),
	  ":1: input_length is \"\"374\"\", want an integer from 0 to 2147483647" },
	{ MO(20, "[0]") "{\"session_id\":\"s\",\"timestamp\":0,\"input_length\":1,\"output_length\":"
		       "1}\n",
	  ":2: the record has \"session_id\": this is a trace of sessions, read it with --format "
	  "aiperf" },
	/* canonical */
	{ "{\"format\":\"reqtrace\",\"version\":2,\"block_size\":0,\"requests\":0}\n",
	  ":1: version 2, this program reads version 1" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0}\n",
	  ":1: the record lacks \"requests\"" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"more\":1}\n",
	  ":1: unknown key \"more\"; keys of your own start with x_" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"context\":"
	  "\"delta\"}\n",
	  ":1: context is not \"cumulative\"; write whole prompts" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"epoch\":5}\n",
	  ":1: epoch is \"5\", want null or a date and time with its zone" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"epoch\":\"2023-"
	  "02-28 00:00:00\"}\n",
	  ":1: epoch is \"\"2023-02-28 00:00:00\"\", want null or a date and time with its zone" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"sources\":[{"
	  "\"name\":1}]}\n",
	  ":1: sources is not an array of objects of strings" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"transforms\":["
	  "1]}\n",
	  ":1: transforms is not an array of strings" },
	{ "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":0,\"requests\":1,\"epoch\":\"2262-"
	  "04-11T00:00:00Z\"}\n" REQ(0, 99999999999999999, ""),
	  ":2: epoch and arrival_ns go beyond the year 2262" },
	{ HEAD(0, 0), ": no requests in the file" },
	{ HEAD(0, 2) REQ(0, 0, ""), ":2: the file ends after 1 of 2 requests" },
	{ HEAD(0, 1) REQ(1, 0, ""), ":2: id is 1, want 0, the line number less 2" },
	{ HEAD(0, 1) "\n" REQ(0, 0, ""), ":3: id is 0, want 1, the line number less 2" },
	{ HEAD(0, 2) REQ(0, 5, "") REQ(1, 4, ""), ":3: arrival_ns decreases" },
	{ HEAD(0, 1) REQ(0, -1, ""),
	  ":2: arrival_ns is \"-1\", want an integer from 0 to 9223372036854775807" },
	{ HEAD(0, 1) "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":0,\"output_tokens\":1}\n",
	  ":2: prompt_tokens is 0, want at least 1" },
	{ HEAD(0, 1) REQ(0, 0, ",\"y\":1"),
	  ":2: unknown key \"y\"; keys of your own start with x_" },
	{ HEAD(0, 1) REQ(0, 0, ",\"blocks\":[0,1]"),
	  ":2: blocks in a trace whose block_size is 0" },
	{ HEAD(16, 1) REQ(0, 0, ",\"blocks\":7"), ":2: blocks is not an array" },
	{ HEAD(16, 1) REQ(0, 0, ",\"blocks\":[0]"),
	  ":2: prompt_tokens 20 makes 2 blocks of 16 tokens, blocks has 1" },
	{ HEAD(16, 1) REQ(0, 0, ",\"blocks\":[0,\"1\"]"),
	  ":2: blocks holds \"\"1\"\", want integers from 0" },
	{ HEAD(16, 2) REQ(0, 0, ",\"blocks\":[0,1]") REQ(1, 0, ",\"blocks\":[1,0]"),
	  ":3: block 1 stood for another prefix before; ids must be chained" },
	{ HEAD(0, 1) REQ(0, 0, SES("5", "0")), ":2: session is \"5\", want a string" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"\\u0000\"", "0")),
	  ":2: session is \"\"\\u0000\"\", want a string" },
	{ HEAD(0, 1) REQ(0, 0, ",\"session\":\"s\""), ":2: the record lacks \"turn\"" },
	{ HEAD(0, 1) REQ(0, 0, ",\"turn\":1"), ":2: turn or think_ns without session" },
	{ HEAD(0, 1) REQ(0, 0, ",\"think_ns\":1"), ":2: turn or think_ns without session" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"a\"", "0") ",\"think_ns\":-1"),
	  ":2: think_ns is \"-1\", want an integer from 0 to 9223372036854775807" },
	{ HEAD(0, 1) REQ(0, 0, ",\"label\":5"), ":2: label is \"5\", want a string" },
	{ HEAD(0, 1) REQ(0, 0, ",\"images\":1.5"),
	  ":2: images is \"1.5\", want an integer from 0 to 4294967295" },
	{ HEAD(0, 2) REQ(0, 0, SES("\"a\"", "0")) REQ(1, 0, SES("\"b\"", "1") ",\"parent\":0"),
	  ":3: parent 0 is not an earlier request of the session" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"a\"", "0") ",\"parent\":\"0\""),
	  ":2: parent is \"\"0\"\", want an integer from 0 to 18446744073709551615" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"a\"", "0") ",\"parent\":0"),
	  ":2: parent 0 is not an earlier request of the session" },
};

static void test_faults(void)
{
	struct ar_err err;

	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct trace *t = read_with(faults[i].text, &whole, &err);

		ok(!t && err.status == AR_DATA && !strncmp(err.msg, path, strlen(path)),
		   "fault %zu is bad data, with its file", i);
		is_str(t ? "" : err.msg + strlen(path), faults[i].message,
		       "fault %zu says what and where", i);
		trace_free(t);
	}
	put("{\"timestamp\":0}\0", 16);
	ok(trace_read(&(struct trace *){ NULL }, path, &whole, &err) == AR_DATA &&
	   !strcmp(err.msg + strlen(path), ":1: a NUL byte; this is not text"), "a NUL byte");
}

static void test_named_format(void)
{
	struct trace_args a = whole;
	struct ar_err err;
	char mooncake[] = "mooncake", vidur[] = "vidur", azure[] = "azure",
	     canonical_[] = "canonical", no[] = "no";

	a.format = vidur;
	ok(!read_with(AZ "2023-11-16 18:15:46,1,1\n", &a, &err) && err.status == AR_DATA,
	   "a format is enforced");
	is_str(err.msg + strlen(path),
	       ":1: the header lacks \"arrived_at\" (have: TIMESTAMP, ContextTokens, "
	       "GeneratedTokens)",
	       "with what is missing");
	ok(!read_with(dialogue, &a, &err), "CSV is no JSON");
	is_str(err.msg + strlen(path), ":1: not in format vidur, which is CSV with a header",
	       "and says so");
	a.format = mooncake;
	ok(!read_with("{\"a\":1,\"b\":2}\n", &a, &err), "a record must have its keys");
	is_str(err.msg + strlen(path), ":1: the record lacks \"timestamp\" (have: a, b)",
	       "with what is missing");
	a.format = canonical_;
	ok(!read_with(dialogue, &a, &err), "the canonical form needs its header");
	is_str(err.msg + strlen(path),
	       ":1: the first line is not a header with \"format\":\"reqtrace\"", "named");
	a.format = no;
	ok(!read_with(dialogue, &a, &err) && err.status == AR_USAGE,
	   "an unknown format is wrong usage");
	is_str(err.msg, "unknown trace format 'no'; want one of aiperf, azure, azure-lmm, bailian, burstgpt, canonical, "
		"llmservingsim, mooncake, ragpulse, splitwise, vidur, vllm",
	       "and the known ones are listed");
	a.format = azure;
	trace_free(read_with("TIMESTAMP,arrived_at,num_prefill_tokens,num_decode_tokens,"
			     "ContextTokens,GeneratedTokens\n"
			     "2023-11-16 18:15:46,9,9,9,1,1\n",
			     &a, &err));
	is_int(err.status, AR_OK, "a format settles a doubt");
}

int main(void)
{
	plan(0);
	text_begin();
	test_faults();
	test_named_format();
	text_end();
	return done_testing();
}
