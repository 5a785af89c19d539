/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of the report in their order, one line each; the SQL is in sections/NAME.sql.
 *
 * SECTION	shown without --dialect.
 * DIALECT	shown with --dialect NAME only.
 * COMMON	shown in every report.
 * PROSE		as SECTION, but only for writers of long lines (struct report_writer).
 *
 * Title NULL: the statement makes a table for the sections after it and shows nothing.
 *
 * Where runs differ in options, these become columns after a column "method".
 *
 * Each file holds one statement.  It may use the tables of attnreplay-db(5) and these:
 *
 * :run		run to report, NULL: all.
 * :baseline	run that :run is compared with, its dense run or that of --baseline, NULL: none.
 * :dialect	"attnreplay", or the name of a DIALECT.
 * slo		limits of requests, a row each: run_id, metric ("ttft", "tpot", "e2e"), ns, own
 *		(1: the run was given it, NULL: the report was).
 * engine_pair	an engine's run and a dense run of the same requests, a row each;
 *		run_id, engine_id, first_id of the run's repeats, first_engine of the engine's
 *		passes; under SECTION only, as is latency.
 * drawn_run	runs whose host's times are drawn: run_id; under SECTION only.
 * engine_error, engine_step_draw, engine_step, engine_residual
 *		errors of percentiles and of iterations, see their make_NAME.sql; under SECTION
 *		only, as is engine_iteration.
 * source_run	where runs come from, if they come from several databases, a row each: run_id,
 *		path, run.
 * run_option	options in which the runs differ, a row for each run and option: run_id, key,
 *		value.
 * latency	v_latency of :run, :baseline and engine_pair, and the ends of intervals of 95 %;
 *		p50_lo, p50_hi, p90_lo, p90_hi, p99_lo, p99_hi.
 * steady	v_steady of :run; under SECTION only.
 * error	mean relative L2 error of :run and :baseline, a row for each half:
 *		run_id, half, mean, lo, hi;
 *		under SECTION only.
 * iteration_sum	sums over the iterations of :run and :baseline, see its file; under SECTION
 *		only.
 * phase_time	v_phase_time of :run and :baseline, with the place of a phase and without its share;
 *		under SECTION only.
 * run_label	the runs of the report, :baseline included, as charts and sentences name them;
 *		run_id, method, is_dense, place (their order), label, style (chart.h).
 * goodput	requests that kept their limits, see make_goodput.sql.
 * speedup	baseline / this and its interval, or the reason why there is none; see its file.
 * assumption	what the figures of a run rest on, see make_assumption.sql.
 * baseline_name, length_gain, limits, verdict, answer
 *		see their make_NAME.sql; all of them under SECTION only.
 *
 * All ratios of latencies are speed-ups: baseline / this, above 1 this is faster. */
COMMON(make_options, NULL)
SECTION(make_engine, NULL)
SECTION(make_latency, NULL)
SECTION(make_drawn_run, NULL)
SECTION(make_engine_error, NULL)
SECTION(make_engine_iteration, NULL)
SECTION(make_engine_step_draw, NULL)
SECTION(make_engine_step, NULL)
SECTION(make_engine_residual, NULL)
SECTION(make_steady, NULL)
SECTION(make_iteration_sum, NULL)
SECTION(make_phase_time, NULL)
SECTION(make_error, NULL)
SECTION(make_label, NULL)
SECTION(make_baseline, NULL)
SECTION(make_speedup, NULL)
SECTION(make_length_gain, NULL)
COMMON(make_goodput, NULL)
SECTION(make_limits, NULL)
SECTION(make_verdict, NULL)
SECTION(make_assumption, NULL)
SECTION(make_answer, NULL)
SECTION(answer, "In short")
SECTION(faster, "Times faster than the baseline; ± is half an interval of 95 %; marks: see below")
SECTION(assumptions, "What these figures rest on, by their marks")
PROSE(verdict, "Each run")
SECTION(engine, "Error against an engine that ran the same requests; spread of its own passes")
SECTION(engine_step_error, "Error of iterations that are alike: ms from end to end; the rest in %")
SECTION(engine_residual, "What that error goes with: each quantity, and beside the first")
SECTION(engine_steps, "Iterations of the engine and of the run, ms")
SECTION(runs, "Runs")
SECTION(memory, "Memory: parameters in 1e9, weights of a rank and GPU in GB, a KV block in MB")
SECTION(device, "GPUs: driver, and clocks in MHz when the run began")
SECTION(outcome, "Outcome: requests, iterations, seconds of virtual time")
SECTION(steady, "Can the load be sustained? Replays, those whose waits grow, and means over time")
SECTION(kv_groups, "Memory by KV cache group: the most blocks owned at a time")
SECTION(costs, "What iterations cost, where that was taken from an earlier run")
SECTION(latency, "Latency, ms; ± is half an interval of 95 %")
SECTION(sessions, "Sessions: finished an hour, seconds to the end of one, prefix cache hits")
SECTION(turns, "Requests of sessions by new and by cached prompt tokens: TTFT, whole turn, ms")
SECTION(replicas, "Replicas: % of the time busy, % of prompt tokens cached, latency in ms")
SECTION(ranks, "Ranks: ms of an iteration, of the wait for the slowest, and of collectives")
SECTION(repeats, "Latency over the repeats of a method, ms: median, smallest and largest")
SECTION(phases, "Time by phase, ms of kernels; * is the attention core, host the wait for the host")
SECTION(halves, "The attention core, ms of kernels: iterations with prompts, and of decodes alone")
SECTION(layer_time, "Time by kind of layer, ms of kernels")
SECTION(layers, "Work of layers that differ: rows, and dense attention or the linear mixer")
SECTION(energy, "Energy of the GPU, joules")
SECTION(speedup, "Against the baseline, dense unless named: baseline / this, of each figure")
SECTION(decodes, "Decodes against dense ones, of keys that are split or walked: dense / this")
SECTION(accuracy, "Accuracy against dense attention, per sampled (request, chunk, layer, head)")
SECTION(match, "What --match asked for, and what the samples of the run have")
SECTION(eval, "Accuracy on tasks: exact answers; logprob and kl in nats a token")
SECTION(eval_paired, "Against dense, prompt by prompt: answers lost and won, McNemar's exact p")
SECTION(eval_expected, "Dense attention against what the tasks file says of it, answers")
SECTION(eval_predict, "Rank correlation of figures of single layers with the change on tasks")
SECTION(drops, "Rows of prompts that droppers kept, and MB of keys and values in each layer after")
SECTION(revived, "Tokens that decodes revived, and MB of dropped ones in the layer's aux cache")
SECTION(hot_buffer, "Hot buffers: tokens of lists that were read before and are still on the GPU, "
		    "and KB that a decode would fetch for a layer")
SECTION(kept, "Dense attention that kept tokens hold: mass of the last queries, top 256 tokens")
SECTION(density, "Density: share of what dense attention looks at")
DIALECT(vllm, "What vllm bench serve prints")
DIALECT(aiperf, "What aiperf prints")
DIALECT(vidur, "What Vidur prints, in seconds")
DIALECT(llmservingsim, "What LLMServingSim prints")
DIALECT(splitwise, "What SplitwiseSim prints, in seconds")
COMMON(goodput, "Goodput: requests that kept their limits, of all that arrived")
SECTION(notes, "Notes")
