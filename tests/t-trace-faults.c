/* SPDX-License-Identifier: Apache-2.0 */
/* Malformed traces: every message of the reader and the importers, word for word. */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/trace_text.h"
#include "traces/importers/import.h"

#define MO(len, ids) \
	"{\"timestamp\":0,\"input_length\":" #len ",\"output_length\":1,\"hash_ids\":" ids "}\n"
#define VL(time) \
	"{\"timestamp\":" #time ",\"input_length\":33,\"output_length\":1,\"hash_ids\":[1,2,3]}\n"
#define BA(id, parent, turn, len, ids) \
	"{\"chat_id\":" #id ",\"parent_chat_id\":" #parent ",\"turn\":" #turn \
	",\"timestamp\":0,\"type\":\"text\",\"input_length\":" #len \
	",\"output_length\":1,\"hash_ids\":" ids "}\n"
#define RA(time, ids) \
	"{\"timestamp\":\"" time "\",\"input_length\":9,\"output_length\":1,\"session_id\":\"a\"," \
	"\"hash_ids\":" ids "}\n"
#define AI(more, ids) \
	"{\"session_id\":\"s\"," more "\"input_length\":20,\"output_length\":5,\"hash_ids\":" ids \
	"}\n"
#define LL(ns, more) "{\"arrival_time_ns\":" #ns "," more "}\n"
#define PART(ns) "{\"input_toks\":1,\"output_toks\":1,\"tool_duration_ns\":" ns "}"
#define FORMATS "<formats>" /* the names of all importers */
#define HEAD(bs, n) \
	"{\"format\":\"reqtrace\",\"version\":1,\"block_size\":" #bs ",\"requests\":" #n "}\n"
#define REQ(id, ns, more) \
	"{\"id\":" #id ",\"arrival_ns\":" #ns ",\"prompt_tokens\":20,\"output_tokens\":3" more "}" \
	"\n"
#define SES(s, t) ",\"session\":" s ",\"turn\":" t
#define COLUMNS_8 ",,,,,,,,"
#define COLUMNS_64 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8 COLUMNS_8
#define KEYS_8(a) \
	"\"" a "0\":0,\"" a "1\":0,\"" a "2\":0,\"" a "3\":0,\"" a "4\":0,\"" a "5\":0,\"" a \
	"6\":0,\"" a "7\":0,"

static const struct fault {
	const char *text, *message; /* after the path */
} faults[] = {
	/* containers */
	{ "", ": no requests in the file" },
	{ "\n\n", ": no requests in the file" },
	{ AZ, ": no requests in the file" },
	{ "\x1f\x8b\x08", ":1: the gzip data end inside a member; the file is truncated" },
	{ "\x1f\x8b\x09\x09", ":1: damaged gzip data: unknown compression method" },
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
	{ "a,b\n1,2\n", ":1: unknown trace format (have: a, b); see --columns" },
	{ "a,b,a\n", ":1: column \"a\" appears twice" },
	{ COLUMNS_64 "\n", ":1: more than 64 columns" },
	{ "a,\"b\n\"\n", ":1: a quoted field must end on its line, before a separator" },
	{ VI "0,1,\"1\"x\n", ":2: a quoted field must end on its line, before a separator" },
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
	{ VI "0,1,\n0,nan,1\n", ": no requests in the file" },
	{ VI "0,1,inf\n",
	  ":2: num_decode_tokens is \"inf\", want an integer from 0 to 2147483647" },
	{ VI "0,0x10,1\n",
	  ":2: num_prefill_tokens is \"0x10\", want an integer from 0 to 2147483647" },
	{ VI "0,2147483648,1\n",
	  ":2: num_prefill_tokens is \"2147483648\", want an integer from 0 to 2147483647" },
	{ VI "0,\"1,000\",1\n",
	  ":2: num_prefill_tokens is \"1,000\", want an integer from 0 to 2147483647" },
	{ VI "0,11111111111111111111111111111111111111111\x01,1\n",
	  ":2: num_prefill_tokens is "
	  "\"1111111111111111111111111111111111111111...\", want an integer from 0 to 2147483647" },
	{ VI "0,+1,1\n", ":2: num_prefill_tokens is \"+1\", want an integer from 0 to 2147483647" },
	{ VI "0,1e3,1\n",
	  ":2: num_prefill_tokens is \"1e3\", want an integer from 0 to 2147483647" },
	{ VI "Infinity,1,1\n",
	  ":2: arrived_at is \"Infinity\", want a time that is a number from 0 on" },
	{ VI "\xef\xbb\xbf"
	     "0,1,1\n",
	  ":2: arrived_at is \"???0\", want a time that is a number from 0 on" },
	{ "\n\n" VI "0,1,x\n",
	  ":4: num_decode_tokens is \"x\", want an integer from 0 to 2147483647" },
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
	{ MO(20,
	     "[0]") "{\"session_id\":\"s\",\"timestamp\":0,\"input_length\":1,\"output_length\":"
		    "1}\n",
	  ":2: the record has \"session_id\": this is a trace of sessions, read it with --format "
	  "aiperf" },
	/* vLLM */
	{ VL(5) "{\"timestamp\":1,\"input_length\":33,\"output_length\":1,\"hash_ids\":[1]}\n",
	  ":2: input_length 33 makes 3 blocks of 16 tokens, hash_ids has 1; it would fit "
	  "--hash-block 64" },
	{ VL(-1), ":1: timestamp is \"-1\", want a time that is a number from 0 on" },
	{ VL(0) "{\"timestamp\":1,\"input_length\":33}\n",
	  ":2: the record lacks \"output_length\"" },
	/* one record that two formats fit */
	{ "{\"timestamp\":0,\"input_length\":33,\"output_length\":1}\n",
	  ":1: formats mooncake and vllm both fit; say which with --format" },
	{ "{\"timestamp\":0,\"input_length\":16,\"output_length\":1,\"hash_ids\":[0]}\n",
	  ":1: formats mooncake and vllm both fit; say which with --format" },
	{ "{\"timestamp\":0,\"input_length\":16,\"output_length\":1,\"arrival_time_ns\":0,"
	  "\"input_toks\":1,\"hash_ids\":[1,2,3]}\n",
	  ":1: formats llmservingsim and mooncake both fit; say which with --format" },
	{ "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"format\":\"reqtrace\","
	  "\"hash_ids\":[1,2]}\n",
	  ":1: formats canonical and mooncake both fit; say which with --format" },
	{ "{\"chat_id\":1,\"parent_chat_id\":-1,\"turn\":1,\"timestamp\":\"0\",\"input_length\":1,"
	  "\"output_length\":1,\"session_id\":\"a\",\"hash_ids\":{}}\n",
	  ":1: formats bailian and ragpulse both fit; say which with --format" },
	/* no format fits */
	{ "Timestamp,Model,Request tokens\n",
	  ":1: no format fits: burstgpt needs \"Response tokens\" (have: Timestamp, Model, "
	  "Request tokens); see --columns" },
	{ "TIMESTAMP,ContextTokens\n",
	  ":1: no format fits: azure needs \"GeneratedTokens\" (have: TIMESTAMP, "
	  "ContextTokens); see --columns" },
	{ "{\"chat_id\":1,\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"turn\":1}\n",
	  ":1: no format fits: bailian needs \"parent_chat_id\" (have: chat_id, timestamp, "
	  "input_length, output_length, turn); see --columns" },
	{ "{\"input_length\":1,\"output_length\":1}\n",
	  ":1: no format fits: aiperf needs \"session_id\"; mooncake needs \"timestamp\"; vllm "
	  "needs \"timestamp\" (have: input_length, output_length); see --columns" },
	{ "{\"timestamp\":\"0\",\"input_length\":1,\"output_length\":1,\"hash_ids\":{}}\n",
	  ":1: no format fits: ragpulse needs \"session_id\" (have: timestamp, input_length, "
	  "output_length, hash_ids); see --columns" },
	{ "arrival_time,num_prefill_tokens,num_decode_tokens\n",
	  ":1: this looks like a Vidur file of dates, which cannot be read; convert it to one "
	  "of " FORMATS },
	{ "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n",
	  ":1: this looks like a Vidur file without \"arrived_at\", which cannot be read; convert "
	  "it to one of " FORMATS },
	{ "{\"input_toks\":1,\"output_toks\":1}\n",
	  ":1: this looks like an LLMServingSim record without \"arrival_time_ns\", which cannot "
	  "be read; convert it to one of " FORMATS },
	{ "{\"session_id\":\"s1\",\"turns\":[{\"text\":\"...\",\"timestamp\":0}]}\n",
	  ":1: this looks like an aiperf multi-turn file, whose texts have no token counts, which "
	  "cannot be read; convert it to one of " FORMATS },
	{ "{\"prompt\":\"What is the capital of India?\",\"output_tokens\":10}\n",
	  ":1: this looks like a trace of texts, which have no token counts, which cannot be read; "
	  "convert it to one of " FORMATS },
	{ "{\"timestamp\":0,\"requests\":[{\"prompt\":1}]}\n",
	  ":1: this looks like an AIBrix workload or a trace of whole sessions, which cannot be "
	  "read; convert it to one of " FORMATS },
	{ "{\"id\":\"s\",\"hash_id_scope\":\"local\",\"requests\":[]}\n",
	  ":1: this looks like an AIBrix workload or a trace of whole sessions, which cannot be "
	  "read; convert it to one of " FORMATS },
	{ "{\n\"id\":\"s\",\n\"hash_id_scope\":\"local\",\"requests\":[]\n}\n",
	  ":1: this looks like an AIBrix workload or a trace of whole sessions, which cannot be "
	  "read; convert it to one of " FORMATS },
	{ "{\n\"a\":1\n}\n", ":1: not a JSON object on one line" },
	{ "[\n{\"request\":\"\",\"response\":\"\",\"info\":{}}\n]\n",
	  ": this looks like a report of inference-perf, which cannot be read; convert it to one "
	  "of " FORMATS },
	{ "{\"metadata\":{},\"metrics\":{}}\n",
	  ":1: this looks like records of requests by aiperf, which 'attnreplay import-engine' "
	  "reads; a trace is one of " FORMATS },
	{ "{\"round\":1,\"timing_events\":[]}\n",
	  ":1: this looks like a TraceLab trace without \"session_id\" or a length, which cannot "
	  "be read; convert it to one of " FORMATS },
	{ "{\"captureData\":{},\"eventMetadata\":{}}\n",
	  ":1: this looks like data captured by SageMaker, which cannot be read; convert it to one "
	  "of " FORMATS },
	{ "{\"timestamp\":0,\"input_length\":20,\"output_length\":1,\"hash_ids\":[1],"
	  "\"delay\":0}\n",
	  ":1: this looks like a trace of sessions without \"session_id\" or a length, which "
	  "cannot be read; convert it to one of " FORMATS },
	/* Azure multimodal */
	{ LMM "2024-10-15T12:00:00.269Z,-1,770,491\n",
	  ":2: NumImages is \"-1\", want an integer from 0 to 2147483647" },
	{ LMM "2024-10-15T12:00:00.269Z,770,491\n", ":2: the row has 3 fields, the header 4" },
	{ LMM "12:00:00,0,770,491\n",
	  ":2: TIMESTAMP is \"12:00:00\", want a date and time such as 2023-11-16 18:15:46.68" },
	/* BurstGPT */
	{ BU1 "5,ChatGPT,472,-18,490,Conversation log\n",
	  ":2: Response tokens is \"-18\", want an integer from 0 to 2147483647" },
	{ BU1 "5,ChatGPT,472,18,x,Conversation log\n",
	  ":2: Total tokens is \"x\", want an integer from 0 to 2147483647" },
	{ BU1 ",ChatGPT,472,18,490,Conversation log\n",
	  ":2: Timestamp is \"\", want a time that is a number from 0 on" },
	{ BU1 "5,ChatGPT,472,18,490,Conversation log\n7,ChatGPT,472,18,490\n",
	  ":3: the row has 5 fields, the header 6" },
	{ BU3 "5,a,soon,GPT-4,472,18,490,Conversation log\n",
	  ":2: Elapsed time is \"soon\", want a time that is a number from 0 on" },
	/* splitwise-sim */
	{ SP "a,2,0,1,1,4096,32\n",
	  ":2: request_id is \"a\", want an integer from 0 to 2147483647" },
	{ SP "0,1,0,1,1,4096,32\n", ":2: request_type is 1, want 2" },
	{ SP "0,2,0,1,4,4096,32\n", ":2: batch_size is 4, want 1" },
	{ SP "0,2,0,1,1,4096,32\n0,2,0,3,1,2048,8\n", ":3: request_id 0 is that of line 2" },
	{ SP "0,2,0,1,1,4096.5,32\n",
	  ":2: prompt_size is \"4096.5\", want an integer from 0 to 2147483647" },
	{ SP "0,2,0,x,1,4096,32\n",
	  ":2: arrival_timestamp is \"x\", want a time that is a number from 0 on" },
	/* Qwen-Bailian */
	{ BA(0, -1, 1, 17, "[0,1]") BA(0, -1, 1, 17, "[0,1]"), ":2: chat_id 0 appears twice" },
	{ BA(3, 3, 1, 17, "[0,1]"), ":1: chat_id 3 is its own parent" },
	{ BA(3, 4, 2, 17, "[0,1]") BA(4, 3, 2, 17, "[0,1]"),
	  ":2: chat_id 4 comes after a record that goes on from it" },
	{ BA(3, -1, 0, 17, "[0,1]"), ":1: turn is 0, want 1 to 2147483647" },
	{ BA(3, -2, 1, 17, "[0,1]"), ":1: parent_chat_id is \"-2\", want an integer" },
	{ BA("3", -1, 1, 17, "[0,1]"), ":1: chat_id is \"\"3\"\", want an integer" },
	{ BA(3, -1, 1.5, 17, "[0,1]"), ":1: turn is \"1.5\", want an integer" },
	{ BA(3, -1, 1, 521, "[1,2]"),
	  ":1: input_length 521 makes 33 blocks of 16 tokens, hash_ids has 2; it would fit "
	  "--hash-block 512" },
	{ "{\"chat_id\":1,\"parent_chat_id\":-1,\"turn\":1,\"timestamp\":0,\"input_length\":1,"
	  "\"output_length\":1,\"type\":7}\n",
	  ":1: type is \"7\", want a string" },
	/* RAGPulse */
	{ RA("82", "{\"history\":[1]}") RA("27s", "{}"),
	  ":2: timestamp is \"27s\", want a time that is a number from 0 on" },
	{ RA("82", "{\"history\":1}"), ":1: history in hash_ids is not an array" },
	{ RA("82", "{\"history\":[1.5]}"), ":1: hash_ids holds something else than integers" },
	{ RA("82", "{\"history\":[],\"future\":[]}"),
	  ":1: hash_ids is not an object of sys_prompt, passages_ids, history, web_search and "
	  "user_input" },
	{ RA("82", "{}") RA("83", "[1]"),
	  ":2: hash_ids is not an object of sys_prompt, passages_ids, history, web_search and "
	  "user_input" },
	{ "{\"timestamp\":\"0\",\"input_length\":1,\"output_length\":1,\"hash_ids\":{},"
	  "\"session_id\":5}\n",
	  ":1: session_id is \"5\", want a string" },
	{ RA("604453", "{}") RA("0", "{}"),
	  ":2: the clock goes back by 604453 s; the file holds several recordings, see --restart" },
	/* aiperf */
	{ AI("", "[1]"), ":1: the record lacks \"timestamp\"" },
	{ AI("\"delay\":5,", "[1]"), ":1: delay in the first turn of a session" },
	{ AI("\"timestamp\":0,", "[1]") AI("", "[1]"),
	  ":2: the record lacks \"timestamp\" or \"delay\"" },
	{ AI("\"timestamp\":0,", "[1]") AI("\"delay\":-1,", "[1]"),
	  ":2: delay is \"-1\", want a time that is a number from 0 on" },
	{ AI("\"timestamp\":9e12,", "[1]") AI("\"delay\":9e12,", "[1]"),
	  ":2: the time goes beyond 2^63 ns" },
	{ AI("\"timestamp\":0,", "[1,2,3]"),
	  ":1: input_length 20 makes 1 blocks of 512 tokens, hash_ids has 3; it would fit "
	  "--hash-block 8" },
	{ AI("\"timestamp\":0,", "[1.5]"),
	  ":1: hash_ids holds \"1.5\", want integers from 0 or plain strings" },
	{ AI("\"timestamp\":0,\"context_mode\":\"x\",", "[1]"),
	  ":1: the record has \"context_mode\"; say with --context what its prompts hold" },
	{ AI("\"timestamp\":0,", "[1]") "{\"session_id\":\"s\",\"input_length\":2147483647,"
					"\"output_length\":1,\"delay\":0}\n",
	  ":2: the session has a prompt of 2147483672 tokens, more than 2147483647" },
	{ AI("\"timestamp\":null,", "[1]"), ":1: the record lacks \"timestamp\"" },
	{ "{\"session_id\":7,\"input_length\":2,\"output_length\":1,\"timestamp\":0}\n",
	  ":1: session_id is \"7\", want a string" },
	{ "{\"session_id\":\"s\",\"text_input\":\"...\",\"timestamp\":0}\n",
	  ":1: this looks like a trace of texts, which have no token counts, which cannot be read; "
	  "convert it to one of " FORMATS },
	/* LLMServingSim */
	{ LL(0, "\"input_toks\":13.7,\"output_toks\":1"),
	  ":1: input_toks is \"13.7\", want an integer from 0 to 2147483647" },
	{ LL(-5, "\"input_toks\":13,\"output_toks\":1"),
	  ":1: arrival_time_ns is \"-5\", want a time that is a number from 0 on" },
	{ LL(0, "\"input_toks\":13"), ":1: the record lacks \"output_toks\"" },
	{ LL(0, "\"input_toks\":1,\"output_toks\":1") LL(0, "\"output_toks\":1"),
	  ":2: the record lacks \"input_toks\"" },
	{ LL(0, "\"input_toks\":2,\"output_toks\":1,\"input_tok_ids\":[1]"),
	  ":1: input_tok_ids has 1 tokens, want 2" },
	{ LL(0, "\"input_toks\":2,\"output_toks\":1,\"input_tok_ids\":[1,2,3]"),
	  ":1: input_tok_ids has 3 tokens, want 2" },
	{ LL(0, "\"input_toks\":2,\"output_toks\":1,\"output_tok_ids\":[1,2]"),
	  ":1: output_tok_ids has 2 tokens, want 1" },
	{ LL(0, "\"input_toks\":2,\"output_toks\":1,\"input_tok_ids\":[1,-2]"),
	  ":1: input_tok_ids holds \"-2\", want integers from 0" },
	{ LL(0, "\"input_toks\":2,\"output_toks\":1,\"input_tok_ids\":\"1 2\""),
	  ":1: input_tok_ids is \"\"1 2\"\", want an array" },
	{ LL(0, "\"sub_requests\":[]"), ":1: the record lacks \"session_id\"" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":5"), ":1: sub_requests is not an array" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":[5]"),
	  ":1: sub_requests holds \"5\", want objects" },
	{ LL(0, "\"session_id\":\"a\",\"input_toks\":1,\"sub_requests\":[]"),
	  ":1: both input_toks and sub_requests" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":[]"), ": no requests in the file" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":[" PART("0") "]")
		  LL(1, "\"session_id\":\"a\",\"sub_requests\":[]"),
	  ":2: session_id \"a\" appears twice" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":[{\"input_toks\":1,\"output_toks\":1}]"),
	  ":1: the record lacks \"tool_duration_ns\"" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":[{\"input_toks\":1}]"),
	  ":1: the record lacks \"output_toks\"" },
	{ LL(0, "\"session_id\":\"a\",\"sub_requests\":[" PART("-1") "]"),
	  ":1: tool_duration_ns is \"-1\", want a time that is a number from 0 on" },
	{ LL(9, "\"session_id\":\"a\",\"sub_requests\":[" PART("9223372036854775807") "]"),
	  ":1: the time goes beyond 2^63 ns" },
	/* canonical */
	{ HEAD(0, 1) REQ(0, 0, ",\"x_join\":[]"), ":2: x_after or x_join without session" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"a\"", "0") ",\"x_after\":0"),
	  ":2: x_after has \"0\", want an earlier request of a session" },
	{ HEAD(0, 2) REQ(0, 0, SES("\"a\"", "0")) REQ(1, 1, SES("\"a\"", "0") ",\"x_after\":0"),
	  ":3: x_after is no earlier turn, and the session began before" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"a\"", "0") ",\"x_join\":5"), ":2: x_join is not an array" },
	{ HEAD(0, 1) REQ(0, 0, SES("\"a\"", "0") ",\"x_join\":[]"),
	  ":2: the record lacks \"x_join_ns\"" },
	{ HEAD(0, 2) REQ(0, 0, SES("\"a\"", "0"))
		  REQ(1, 1, SES("\"b\"", "0") ",\"x_join\":[0],\"x_join_ns\":1"),
	  ":3: x_join has request 0, whose session this one did not start" },
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
	{ HEAD(0, 1) REQ(0, 0, SES("\"\\\\\\u0000\"", "0")),
	  ":2: session is \"\"\\\\\\u0000\"\", want a string" },
	{ HEAD(0, 2) REQ(0, 0, SES("\"\\\\u0000\"", "0")),
	  ":2: the file ends after 1 of 2 requests" },
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

/* Output of the program for the file: its last line, and its exit status. */
static int program(char *last, size_t size)
{
	char cmd[256], line[1024];
	FILE *f;
	int status;

	snprintf(cmd, sizeof cmd, "\"$ATTNREPLAY\" trace info %s 2>&1 >/dev/null", path);
	*last = 0;
	f = popen(cmd, "r");
	if (!f)
		bail_out("no shell");
	while (fgets(line, sizeof line, f))
		snprintf(last, size, "%.*s", (int)strcspn(line, "\n"), line);
	status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_program(size_t i, const char *msg)
{
	char last[1024], want[1024];
	int status = program(last, sizeof last);

	snprintf(want, sizeof want, "attnreplay: %s", msg);
	ok(status == 3 && !strcmp(last, want), "fault %zu: the program says so and exits with 3",
	   i);
}

/* The text with the names in place of FORMATS. */
static const char *with_formats(const char *text)
{
	static char out[1024];
	const char *end = strstr(text, FORMATS);
	size_t n;

	if (!end)
		return text;
	n = (size_t)snprintf(out, sizeof out, "%.*s", (int)(end - text), text);
	for (int i = 0; importers[i] && n < sizeof out; i++)
		n += (size_t)snprintf(out + n, sizeof out - n, "%s%s", i ? ", " : "",
				      importers[i]->name);
	return out;
}

static void test_faults(void)
{
	struct ar_err err;

	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct trace *t = read_with(faults[i].text, &whole, &err);

		ok(!t && err.status == AR_DATA && !strncmp(err.msg, path, strlen(path)),
		   "fault %zu is bad data, with its file", i);
		is_str(t ? "" : err.msg + strlen(path), with_formats(faults[i].message),
		       "fault %zu says what and where", i);
		test_program(i, err.msg);
		trace_free(t);
	}
	put("{\"timestamp\":0}\0", 16);
	ok(trace_read(&(struct trace *){ NULL }, path, &whole, &err) == AR_DATA &&
		   !strcmp(err.msg + strlen(path), ":1: a NUL byte; this is not text"),
	   "a NUL byte");
}

static void test_named_format(void)
{
	struct trace_args a = whole;
	struct ar_err err;
	char mooncake[] = "mooncake", vidur[] = "vidur", azure[] = "azure",
	     canonical_[] = "canonical", no[] = "no";

	a.in.format = vidur;
	ok(!read_with(AZ "2023-11-16 18:15:46,1,1\n", &a, &err) && err.status == AR_DATA,
	   "a format is enforced");
	is_str(err.msg + strlen(path),
	       ":1: the header lacks \"arrived_at\" (have: TIMESTAMP, ContextTokens, "
	       "GeneratedTokens)",
	       "with what is missing");
	ok(!read_with(dialogue, &a, &err), "CSV is no JSON");
	is_str(err.msg + strlen(path), ":1: not in format vidur, which is CSV with a header",
	       "and says so");
	a.in.format = mooncake;
	ok(!read_with("{\"a\":1,\"b\":2}\n", &a, &err), "a record must have its keys");
	is_str(err.msg + strlen(path), ":1: the record lacks \"timestamp\" (have: a, b)",
	       "with what is missing");
	a.in.format = canonical_;
	ok(!read_with(dialogue, &a, &err), "the canonical form needs its header");
	is_str(err.msg + strlen(path),
	       ":1: the first line is not a header with \"format\":\"reqtrace\"", "named");
	a.in.format = no;
	ok(!read_with(dialogue, &a, &err) && err.status == AR_USAGE,
	   "an unknown format is wrong usage");
	is_str(err.msg, with_formats("unknown trace format 'no'; want one of " FORMATS),
	       "and the known ones are listed");
	a.in.format = azure;
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
