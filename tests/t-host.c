/* SPDX-License-Identifier: Apache-2.0 */
/* The host model: kinds of iterations, times of the parts, the two clocks, and files. */
#include "config.h"
#include "replay/host/host.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "replay/host/host_probe.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

/* Times that are powers of ten, so that a sum shows its terms. */
static const struct host sample = {
	.ns = { [HOST_SCHEDULE] = 100,
		[HOST_SCHEDULE_REQ] = 1,
		[HOST_PREPARE] = 1000,
		[HOST_PREPARE_REQ] = 10,
		[HOST_PREPARE_TOK] = 2,
		[HOST_JOIN] = 5000,
		[HOST_GRAPH] = 7,
		[HOST_PIECES] = 30,
		[HOST_PIECES_LAYER] = 4,
		[HOST_EAGER] = 50,
		[HOST_EAGER_KERNEL] = 3,
		[HOST_UPDATE] = 20,
		[HOST_UPDATE_REQ] = 6,
		[HOST_WAKE] = 100000,
		[HOST_GAP] = 60,
		[HOST_ADMIT] = 40,
		[HOST_ADMIT_TOK] = 8,
		[HOST_RECEIVE] = 1000,
		[HOST_RECEIVE_TOK] = 2,
		[HOST_DELIVER] = 300,
		[HOST_DELIVER_REQ] = 10,
		[HOST_HTTP] = 50000,
		[HOST_HTTP_TOK] = 20,
		[HOST_HTTP_SEND] = 7000,
		[HOST_HTTP_SEND_REQ] = 500,
		[HOST_GAP_REQ] = 1,
		[HOST_GAP_LAYER] = 1000,
		[HOST_SCHEDULE_TOK] = 1000000,
		[HOST_DELIVER_EAGER] = 90000 },
	.max_captured = 16,
	.n_layers = 2,
	.n_kernels = 20,
};

static void test_kinds(void)
{
	struct batch_entry e[] = { { .n_tok = 1, .kind = ROW_DECODE, .chunk_no = 3 },
				   { .n_tok = 15, .chunk_no = 0 } };
	struct batch b = { e, 1, 0, 1, NULL, { 0 } };
	struct host_load x = host_load(&sample, &b);

	ok(x.kind == HOST_KIND_GRAPH && x.n_req == 1 && x.n_tok == 1 && !x.n_join,
	   "decodes run from one graph");
	b = (struct batch){ e, 2, 15, 1, NULL, { 0 } };
	x = host_load(&sample, &b);
	ok(x.kind == HOST_KIND_PIECES && x.n_req == 2 && x.n_tok == 16 && x.n_join == 1,
	   "a prompt up to the largest captured size runs from graphs by pieces");
	b.prefill_tok = 16;
	is_int(host_load(&sample, &b).kind, HOST_KIND_EAGER, "a larger one runs eagerly");
	b = (struct batch){ e, 1, 0, 17, NULL, { 0 } };
	is_int(host_load(&sample, &b).kind, HOST_KIND_EAGER, "... and so do more decodes");
}

static int64_t kernels_of(const char *preset)
{
	struct ar_err err;
	struct model m;
	int64_t n;

	if (model_load(&m, preset, &err))
		bail_out("%s", err.msg);
	n = host_kernels(&m);
	model_release(&m);
	return n;
}

static void test_kernels(void)
{
	is_int(kernels_of("llama-3.1-8b"), 32 * 10, "kernels of layers that are alike");
	is_int(kernels_of("gpt-oss-20b"), 24 * 15, "... and with experts, biases and windows");
	is_int(kernels_of("qwen3-8b"), 36 * 11, "norms of Q and K are a kernel");
	is_int(kernels_of("gemma-3-12b"), 48 * 11, "norms after attention and MLP are none");
	is_int(kernels_of("qwen3-next-80b-a3b"), 12 * 21 + 36 * 22,
	       "linear layers, gates and shared experts are counted");
}

static void test_parts(void)
{
	struct host_load x = { HOST_KIND_PIECES, 2, 16, 1, 5, false, 0 };
	struct host_parts p = host_parts(&sample, &x);

	is_int(p.schedule, 16000102, "scheduling counts requests and tokens");
	is_int(p.prepare, 6032, "preparing counts tokens and joining requests");
	is_int(p.update, 32, "recording counts requests");
	is_int(p.gap, 62, "the GPU's gap counts requests");
	x.kind = HOST_KIND_EAGER;
	is_int(host_parts(&sample, &x).gap, 2062, "... and layers that are launched by kernels");
	x.kind = HOST_KIND_PIECES;
	x.idle = true;
	is_int(host_parts(&sample, &x).prepare, 106032, "an idle engine wakes up");
	x.idle = false;
	is_int(p.launch, 30 + 2 * 4 + 5 * 3, "pieces: layers, and kernels beside them");
	x.kind = HOST_KIND_EAGER;
	is_int(host_parts(&sample, &x).launch, 50 + 20 * 3 + 5 * 3,
	       "eager: kernels of all layers, and those beside them");
	x.kind = HOST_KIND_GRAPH;
	is_int(host_parts(&sample, &x).launch, 7, "a graph has one launch");
	is_int(host_parts(&sample, &x).prepare, 5052, "... which makes the inputs of its requests");
	is_int(host_admit(&sample, 100), 840, "admission counts the prompt's tokens");
}

static void test_front(void)
{
	struct host h = sample;
	int64_t free_at = 0;

	is_int(host_receive(&h, 5), 51000 + 5 * 22, "a request passes HTTP and the front end");
	is_int(host_deliver(&h, 4, false, 100, &free_at), 100 + 7300 + 4 * 510, "so do its tokens");
	free_at = 0;
	is_int(host_deliver(&h, 4, true, 100, &free_at), 100 + 97300 + 4 * 510,
	       "... later while kernels are launched one by one");
	for (int i = HOST_HTTP; i <= HOST_HTTP_SEND_REQ; i++)
		h.ns[i] = 0;
	is_int(host_receive(&h, 5), 1010, "HTTP may be left out");
	free_at = 0;
	is_int(host_deliver(&h, 4, false, 100, &free_at), 440, "... on the way back, too");
	is_int(host_deliver(&h, 100, false, 110, &free_at), 1440,
	       "a busy front end does one batch after the other");
	is_int(host_deliver(&h, 1, false, 5000, &free_at), 5310, "... until it has time again");
	is_int(free_at, 5310, "... which it knows");
	h.ns[HOST_DELIVER] = INT64_MAX;
	is_int(host_deliver(&h, 1, false, 5000, &free_at), INT64_MAX, "sums do not overflow");
}

static void test_scale(void)
{
	struct host h = sample;

	h.ns[HOST_WAKE] = INT64_MAX;
	host_scale(&h, 2);
	ok(h.ns[HOST_GRAPH] == 14 && h.ns[HOST_RECEIVE] == 2000 && h.ns[HOST_GAP] == 60 &&
		   h.ns[HOST_GAP_REQ] == 1 && h.ns[HOST_GAP_LAYER] == 1000 &&
		   h.ns[HOST_WAKE] == INT64_C(1) << 62,
	   "a slower host takes longer for all but the GPU's gaps");
}

static void test_probe(void)
{
	struct probe a = { { 10, 4, 0 } }, b = { { 40, 4, 9 } }, got, again;
	cJSON *o = probe_json(&b);
	struct timespec begin, end;
	struct ar_err err = { 0 };

	ok(probe_ratio(&a, &b) == 2 && probe_ratio(&b, &a) == 0.5,
	   "hosts compare by the mean of what both have");
	ok(!probe_ratio(&a, &(struct probe){ { 0, 0, 9 } }), "... if there is anything");
	ok(probe_read(&got, o) && !memcmp(&got, &b, sizeof b), "a probe is written and read");
	cJSON_Delete(o);
	ok(!probe_read(&got, NULL), "... unless there is none");
	clock_gettime(CLOCK_MONOTONIC, &begin);
	is_int(host_probe(&got, HOST_PROBE_NO_GPU, &err), AR_OK, "this host is probed");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ok(got.ns[PROBE_LOOP] > 0 && !got.ns[PROBE_LAUNCH] && end.tv_sec - begin.tv_sec < 20,
	   "... soon, but for a GPU");
	fault_arm(0);
	is_int(host_probe(&got, HOST_PROBE_NO_GPU, &err), AR_NOMEM, "without memory it fails");
	fault_arm(0);
	is_int(host_probe_apart(&got, HOST_PROBE_NO_GPU, &err), AR_NOMEM,
	       "... in a process of its own, too");
	fault_disarm();
	host_probe_begin(0); /* is ended, as another device is asked for */
	is_int(host_probe_apart(&got, HOST_PROBE_NO_GPU, &err), AR_OK, "... but not with memory");
	is_int(host_probe_apart(&again, HOST_PROBE_NO_GPU, &err), AR_OK, "asked again");
	ok(got.ns[PROBE_LOOP] > 0 && !memcmp(&got, &again, sizeof got), "... it has measured once");
	host_probe_begin(0);
	host_probe_begin(HOST_PROBE_NO_GPU);
	host_probe_take();
	host_probe_leave();
	is_int(host_probe_apart(&again, HOST_PROBE_NO_GPU, &err), AR_OK,
	       "its process has ended, and the result is still there");
	ok(again.ns[PROBE_LOOP] > 0 && memcmp(&got, &again, sizeof got), "... measured anew");
}

/* What a probe reads beside four programs on the same processor, over what it reads alone: a wait
 * for the processor would make it five. */
static double probe_beside_load(void)
{
	pid_t other[4];
	struct probe alone, beside;
	struct ar_err err = { 0 };

	is_int(host_probe(&alone, HOST_PROBE_NO_GPU, &err), AR_OK, "a probe on one processor");
	for (int i = 0; i < 4; i++) {
		other[i] = fork();
		while (!other[i])
			sched_getcpu();
	}
	is_int(host_probe(&beside, HOST_PROBE_NO_GPU, &err), AR_OK, "... beside others");
	for (int i = 0; i < 4 && other[i] > 0; i++) {
		kill(other[i], SIGKILL);
		waitpid(other[i], NULL, 0);
	}
	return beside.ns[PROBE_LOOP] / alone.ns[PROBE_LOOP];
}

/* Other programs of the machine may empty its caches during one probe, hardly during three. */
static void test_probe_on_loaded_host(void)
{
	double ratio = 5;
	cpu_set_t all, one;

	is_int(sched_getaffinity(0, sizeof all, &all), 0, "the processors of this process");
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	for (int i = 0; i < 3 && ratio >= 3; i++)
		ratio = probe_beside_load();
	sched_setaffinity(0, sizeof all, &all);
	ok(ratio < 3, "... reads the host's speed and not its load: %.2f", ratio);
}

/* The correlation of draws that are lag apart is about want. */
static void near_draws(int64_t lag, double want)
{
	enum { N = 4000 };
	const double mean = (HOST_SPREAD - 1) / 2.0, var = (HOST_SPREAD * HOST_SPREAD - 1) / 12.0;
	double sum = 0;

	for (int64_t i = 0; i < N; i++) {
		int64_t t = i * 10010000000;
		double draw = (double)host_draw(5, 1, t), later = (double)host_draw(5, 1, t + lag);

		sum += (draw - mean) * (later - mean);
	}
	ok(fabs(sum / N / var - want) < 0.06, "draws %.2f s apart correlate by %.2f",
	   (double)lag / 1e9, sum / N / var);
}

/* The longest of n independent draws is below x of all with a probability of x^n. */
static void test_ranks(int64_t apart)
{
	enum { N = 4000, LATE = HOST_SPREAD * 3 / 4 };
	const double rare = 1 - (double)LATE / HOST_SPREAD;
	int longer = 0, late[5] = { 0 };

	for (int64_t i = 0; i < N; i++) {
		longer += host_draw(3, 2, i * apart) < host_draw(3, 1, i * apart);
		for (int n = 1; n <= 4; n++)
			late[n] += host_draw(3, n, i * apart) >= LATE;
	}
	is_int(longer, 0, "several ranks are not faster than the first one");
	for (int n = 1; n <= 4; n++) {
		const double want = 1 - pow(1 - rare, n), got = (double)late[n] / N;

		ok(fabs(got - want) < 0.03, "%d ranks draw by themselves: late in %.3f, want %.3f",
		   n, got, want);
	}
}

static void test_spread(void)
{
	const int64_t apart = 10000000000;
	struct host h = sample;
	struct host_load x = { HOST_KIND_EAGER, 2, 16, 1, 5, false, 7 };
	int seen[HOST_SPREAD] = { 0 }, least = INT_MAX, most = 0;

	for (int i = 0; i < HOST_SPREAD; i++)
		h.spread[HOST_KIND_EAGER][i] = 500 + 100 * i;
	is_int(host_parts(&h, &x).launch, 125 * 1200 / 1000, "a launch drawn from the spread");
	is_int(host_parts(&h, &x).prepare, 6032 * 12 / 10, "... and preparing, by the same draw");
	is_int(host_parts(&h, &x).schedule, 16000102, "... but no other part");
	x.kind = HOST_KIND_PIECES;
	is_int(host_parts(&h, &x).launch, 53, "a kind without a spread takes its time");
	h.ns[HOST_EAGER] = INT64_MAX / 10;
	h.spread[HOST_KIND_EAGER][7] = 20000;
	x.kind = HOST_KIND_EAGER;
	is_int(host_parts(&h, &x).launch, INT64_MAX, "a product that is too large saturates");

	for (int64_t i = 0; i < 100 * HOST_SPREAD; i++)
		seen[host_draw(3, 1, i * apart)]++;
	for (int i = 0; i < HOST_SPREAD; i++) {
		least = seen[i] < least ? seen[i] : least;
		most = seen[i] > most ? seen[i] : most;
	}
	ok(least > 60 && most < 140, "all quantiles are drawn: %d to %d of 100 times", least, most);
	near_draws(apart / 200, 0.58);
	near_draws(apart / 20, 0.25);
	near_draws(apart / 2, 0);
	ok(host_draw(3, 1, 5) == host_draw(3, 1, 5) &&
		   host_draw(3, 1, 5) != host_draw(1ull << 40, 1, 5),
	   "a draw depends on the seed");
	test_ranks(apart);
}

/* Parts of 10 + 20, a launch of 100, and 5 to record. */
static const struct host_parts parts = { 10, 20, 100, 5, 0 };

static void test_sync(void)
{
	struct host_clock c = { .now = 1000 };

	is_int(host_run(&c, &parts, HOST_KIND_EAGER, 40, false), 90,
	       "the GPU waits for the first kernel, and for the last");
	ok(c.gpu_end == 1130 && c.now == 1135 && !c.in_flight,
	   "... ends with the launch, and the host records the tokens then");
	is_int(host_run(&c, &parts, HOST_KIND_PIECES, 400, false), 30,
	       "a long iteration waits for the first kernel only");
	ok(c.gpu_end == 1565 && c.now == 1570, "... and ends by itself");
	is_int(host_run(&c, &parts, HOST_KIND_GRAPH, 400, false), 130,
	       "a graph starts when it has been launched");
	is_int(c.now, 1570 + 130 + 400 + 5, "... and the host waits for its end");
	c = (struct host_clock){ .now = 1000 };
	is_int(host_run(&c, &(struct host_parts){ 10, 20, 100, 5, 7 }, HOST_KIND_EAGER, 400, false),
	       37, "the GPU's gap delays it");
	is_int(c.gpu_end, 1437, "... like the host");
}

static void test_async(void)
{
	struct host_clock c = { .now = 1000 };

	is_int(host_run(&c, &parts, HOST_KIND_EAGER, 300, true), 30, "the first one is waited for");
	ok(c.now == 1130 && c.gpu_end == 1330 && c.in_flight, "... but not by the host");
	is_int(host_run(&c, &parts, HOST_KIND_GRAPH, 200, true), 0,
	       "what is launched while the GPU works costs nothing");
	ok(c.gpu_end == 1530 && c.now == 1335, "... and the host waits for the one before");
	is_int(host_run(&c, &parts, HOST_KIND_EAGER, 40, true), 0, "a launch ends before its turn");
	ok(c.gpu_end == 1570 && c.now == 1535, "... in order");
	is_int(host_run(&c, &parts, HOST_KIND_EAGER, 40, true), 55,
	       "a host that is slower than the GPU");
	ok(c.gpu_end == 1665 && c.now == 1670, "... sets the pace");
	host_wait(&c, 10);
	ok(c.now == 1685 && !c.in_flight, "nothing to launch: the host records the last tokens");
}

static void test_saturation(void)
{
	const struct host_parts p = { INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX };
	struct host_clock c = { .now = 1, .gpu_end = 1 };

	host_run(&c, &p, HOST_KIND_EAGER, INT64_MAX, true);
	host_run(&c, &p, HOST_KIND_EAGER, INT64_MAX, true);
	host_wait(&c, INT64_MAX);
	ok(c.now == INT64_MAX && c.gpu_end == INT64_MAX, "sums end at the clock's end");
}

/* Random times: a GPU and a host that wait for each other only where they must. */
static void test_random(void)
{
	struct rng r = { 7 };
	int bad = 0;

	for (int i = 0; i < 3000; i++) {
		bool async = rng_below(&r, 2);
		struct host_clock c = { 0 }, none = { 0 };
		int64_t gpu = 0, wait = 0;

		for (int k = 0; k < 20; k++) {
			const struct host_parts p = { (int64_t)rng_below(&r, 50),
						      (int64_t)rng_below(&r, 50),
						      (int64_t)rng_below(&r, 500),
						      (int64_t)rng_below(&r, 50), 0 };
			int64_t ns = (int64_t)rng_below(&r, 600), end = c.gpu_end, now = c.now;

			wait += host_run(&c, &p, (enum host_kind)rng_below(&r, HOST_KINDS), ns,
					 async);
			host_run(&none, &(struct host_parts){ 0 }, HOST_KIND_EAGER, ns, async);
			gpu += ns;
			bad += c.gpu_end < end + ns || c.gpu_end < c.launched ||
			       c.launched != now + p.schedule + p.prepare + p.launch ||
			       c.now < c.launched || (!async && c.now < c.gpu_end);
			bad += none.gpu_end != gpu || (async && none.now != gpu - ns);
		}
		/* between iterations a host in step may also leave the GPU idle */
		bad += c.gpu_end < gpu + (async ? 0 : wait);
	}
	is_int(bad, 0, "3,000 random hosts keep the order of time");
}

static char path[] = "t-host.XXXXXX";

static void put(const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		bail_out("%s: cannot write", path);
}

/* The sample with one key changed. */
static void put_with(const char *key, const char *value)
{
	char text[2048];
	size_t n = (size_t)snprintf(text, sizeof text, "{\"about\": \"x\"");

	for (int i = -1; i < HOST_N_TIMES; i++) {
		const char *k = i < 0 ? "cudagraph_capture_sizes" : host_keys[i];
		const char *v = !strcmp(k, key) ? value : i < 0 ? "[1, 512, 8]" : "5";

		if (*v)
			n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %s", k, v);
	}
	if (!strcmp(key, "probe"))
		n += (size_t)snprintf(text + n, sizeof text - n, ", \"probe\": %s", value);
	for (int k = 0; k < HOST_KINDS; k++)
		if (!strcmp(host_spread_keys[k], key))
			n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %s", key,
					      value);
	snprintf(text + n, sizeof text - n, "}");
	put(text);
}

static void refused(const char *want)
{
	struct ar_err err = { 0 };
	char message[256];
	struct host h;

	snprintf(message, sizeof message, "%s%s", path, want);
	is_int(host_load_file(&h, path, &err), AR_DATA, "bad file");
	is_str(err.msg, message, "... says so");
}

static void test_files(void)
{
	static const int64_t size[] = { 1, 8, 16 };
	struct ar_err err = { 0 };
	struct host h = sample, got;
	bool hit = true;
	int wrong = 0;

	snprintf(h.about, sizeof h.about, "an \"engine\"");
	h.probe.ns[PROBE_LOOP] = 12.5;
	for (int i = 0; i < HOST_SPREAD; i++)
		h.spread[HOST_KIND_PIECES][i] = 1 + i * 30000;
	is_int(host_write(&h, size, 3, path, &err), AR_OK, "write a file");
	is_int(host_load_file(&got, path, &err), AR_OK, "read it");
	ok(!memcmp(h.ns, got.ns, sizeof h.ns) && !memcmp(h.spread, got.spread, sizeof h.spread) &&
		   got.max_captured == 16 && !strcmp(got.about, h.about) &&
		   got.probe.ns[PROBE_LOOP] == 12.5 && !strcmp(got.name, path),
	   "... and get the same");
	unlink(path);
	for (long k = 0; hit && k < 1000; k++) {
		enum ar_status st;

		fault_arm(k);
		st = host_write(&h, size, 3, path, &err);
		hit = fault_disarm();
		wrong += st != (hit ? AR_NOMEM : AR_OK) || !access(path, F_OK) == hit;
	}
	ok(!wrong && !hit, "each allocation of writing may fail, and leaves no file");
	is_int(host_load_file(&got, "none", &err), AR_OK, "none is no file");
	is_int(host_admit(&got, 1000), 0, "... and takes no time");
	is_int(host_load_file(&got, "vllm-0.24", &err), AR_OK, "a preset is found by its name");
	ok(got.max_captured == 512 && got.ns[HOST_EAGER_KERNEL] > 0 && *got.about,
	   "... and has times");
	is_int(host_load_file(&got, "no-such", &err), AR_DATA, "an unknown name");
	is_str(err.msg,
	       "no-such: no such file and no host preset of this name; give a file of 'attnreplay "
	       "calibrate host', a preset such as vllm-0.24, or none",
	       "... says what can be given");

	put("{\n\"about\": }");
	refused(":2: malformed JSON");
	put("[]");
	refused(": not a JSON object");
	for (int i = 0; i < HOST_N_TIMES; i++) {
		char want[128];

		snprintf(want, sizeof want, ": '%s': want a whole number of ns, at most an hour",
			 host_keys[i]);
		put_with(host_keys[i], i % 3 ? "-1" : i % 2 && i < HOST_FRONT ? "" : "0.5");
		refused(want);
	}
	put_with("cudagraph_capture_sizes", "3");
	refused(": 'cudagraph_capture_sizes': want an array of numbers of tokens");
	put_with("cudagraph_capture_sizes", "[0]");
	refused(": 'cudagraph_capture_sizes': want an array of numbers of tokens");
	put_with("eager_spread", "1000");
	refused(": 'eager_spread': want 32 whole numbers of thousandths, from 1 to 1000000");
	put_with("graph_spread", "[1000, 1000]");
	refused(": 'graph_spread': want 32 whole numbers of thousandths, from 1 to 1000000");
	for (int i = 0; i < 3; i++) {
		static const char *const bad[] = { "0", "1000001", "\"1\"" };
		char list[256] = "[";

		for (int k = 0; k < HOST_SPREAD; k++) {
			strcat(list, k ? ", " : "");
			strcat(list, k == 20 ? bad[i] : "7");
		}
		strcat(list, "]");
		put_with("pieces_spread", list);
		refused(": 'pieces_spread': want 32 whole numbers of thousandths, from 1 to "
			"1000000");
	}
	put_with("probe", "1");
	refused(": 'probe': want what 'attnreplay bench host --json' writes");
	put_with("receive_ns", "");
	is_int(host_load_file(&got, path, &err), AR_OK, "times of the front end may be missing");
	is_int(got.ns[HOST_RECEIVE], 0, "... and are 0");
	put_with("", "");
	is_int(host_load_file(&got, path, &err), AR_OK, "the file without a change is good");
	is_int(got.max_captured, 512, "... and its largest size counts");
}

static void test_no_memory(void)
{
	int wrong = 0, n = 0;

	put_with("", "");
	for (long k = 0;; k++) {
		struct ar_err err = { 0 };
		struct host h;
		enum ar_status st;

		fault_arm(k);
		st = host_load_file(&h, path, &err);
		if (!fault_disarm())
			break;
		wrong += st != AR_NOMEM;
		n++;
	}
	ok(n > 20 && !wrong, "each of %d failing allocations is reported", n);
}

int main(void)
{
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0)
		bail_out("no temporary file");
	close(fd);
	test_kinds();
	test_kernels();
	test_parts();
	test_front();
	test_scale();
	test_probe();
	test_probe_on_loaded_host();
	test_spread();
	test_sync();
	test_async();
	test_saturation();
	test_random();
	test_files();
	test_no_memory();
	unlink(path);
	return done_testing();
}
